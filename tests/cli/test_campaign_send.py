"""`zonemta campaign send` and its orders: the words of the command line, what they mean, and mistakes in them."""

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from zonemta_py.cli.campaign import hours
from zonemta_py.cli.campaign import settings as words
from zonemta_py.cli.campaign.orders import sparkline
from zonemta_py.cli.terminal.errors import CommandError, Exit
from zonemta_py.mail.envelope import Envelope, Recipient
from zonemta_py.merge.compile import fields, prepare
from zonemta_py.merge.load import load
from zonemta_py.merge.source import TemplateSource, Text
from zonemta_py.pipeline.prepare.settings import BestHour, Cap, Lane

TEMPLATE = 'subject = "Hi {{ name }}"\nfrom = "news@sender.net"\ntext = """\n{{ city|default("x") }}\n"""\n'

PLANNED = ("good.csv", "-t", "t.toml", "--name", "may", "--plan-only")


def test_lanes_share_their_zones_weight() -> None:
    """Sources of one zone share its weight; a zone without sources is a lane of its own; nothing named: the node's."""
    assert words.lanes([], []) == (Lane(),)
    assert words.lanes(["a=3", "b"], ["a/192.0.2.1=2", "a/192.0.2.2"]) == (
        Lane("a", "192.0.2.1", 2), Lane("a", "192.0.2.2", 1), Lane("b", "", 1),
    )  # fmt: skip
    assert words.lanes(["a"], ["192.0.2.1"]) == (Lane("a", "192.0.2.1", 1),)


def test_maps_caps_and_bounds() -> None:
    """As the help writes them."""
    assert words.mapping(["email=E-Mail"], ["E-Mail", "name", "First Name", "1", "Last Name", "last_name"]) == {
        "name": "name", "email": "E-Mail", "First_Name": "First Name", "first_name": "First Name",
        "Last_Name": "Last Name", "last_name": "last_name",
    }  # fmt: skip
    assert words.caps(["192.0.2.1/google=500,1000"]) == (Cap("192.0.2.1", "google", (500, 1000)),)
    assert words.bounds("none") == {}
    assert words.bounds("blocked=1%, least=20") == {**words.DEFAULT_BOUNDS, "blocked": 0.01, "least": 20}
    assert (words.share("--canary", "2%"), words.share("--canary", "0.02")) == (0.02, 0.02)


def test_by_whose_clocks_a_campaign_goes() -> None:
    """By a column of the list that is named, or is called so; else by one time zone for all; never by a guess."""
    nine = hours.given("09:00", "", "", "")
    assert hours.asked(nine, "", ["email", "Time_Zone"]) == (
        {"at": "09:00", "time_zone_column": "time_zone"},
        "Time_Zone",
    )
    assert hours.asked(nine, "land", ["email", "land"]).column == "land"
    assert hours.asked(hours.given("09:00", "", "", "DE"), "", ["email"]).hours == {"at": "09:00", "time_zone": "DE"}
    moment = {"at": "2099-01-01T09:00+01:00"}
    assert hours.asked(hours.given(**moment, window="", until="", time_zone=""), "", ["email"]) == (moment, "")
    assert hours.asked({}, "", ["time_zone"]) == ({}, "")
    assert hours.asked(nine, "", ["tz"]).fields({"name": "first"}) == {"name": "first", "time_zone": "tz"}
    for said, column, sentence in (
        (nine, "", "by whose clocks? name the list's column"),
        (nine, "zone", "--time-zone-column 'zone': the list has 'email'; name one of them"),
        ({}, "email", "--time-zone-column: there is no time to go by; add --at, --window or --until"),
        ({"time_zone": "DE"}, "", "--time-zone: there is no time to go by"),
    ):
        with pytest.raises(CommandError) as caught:
            hours.asked(said, column, ["email"])
        assert sentence in caught.value.sentence
    with pytest.raises(CommandError, match="give the template's field another name"):
        hours.asked(nine, "land", ["land", "zone"]).fields({"time_zone": "zone"})


def test_each_at_their_best_hour() -> None:
    """By a column that the plan makes; those without one at ten, or as it is said; by whose clocks, as for others."""
    for said, otherwise in (("best", "10:00"), ("best,8:30", "8:30")):
        when = hours.asked(hours.given(said, "", "", "FR"), "", ["email", "tz"])
        assert when.hours == {
            "at": otherwise, "at_column": "best_hour", "time_zone": "FR", "time_zone_column": "time_zone",
        }  # fmt: skip
        assert when.best_hour({"DE": 2, "Mars": 1}) == BestHour("time_zone", {"DE": "Europe/Berlin"}, "Europe/Paris")
    assert hours.asked(hours.given("9:00", "", "", "FR"), "", ["email"]).best_hour({}) is None
    with pytest.raises(CommandError, match="needs the name best_hour"):
        when.fields({"best_hour": "x"})


def test_which_time_zones_a_list_has() -> None:
    """Countries and locales count for their zone; what is unknown is said, with what it goes by."""
    counts = {"DE": 3, "Europe/Berlin": 2, "en_US": 4, "Mars": 1, "": 2}
    assert hours.told(counts, "land", "FR") == [
        "time zones in 'land': Europe/Berlin 5, America/New_York 4",
        "3 rows have no time zone or country in 'land' ('', 'Mars'): they go by FR, which --time-zone sets",
    ]


def test_a_small_canary_is_judged_all_the_same() -> None:
    """Half of its recipients are enough attempts, ten at least; without canary or bounds nothing changes."""
    bounds = {"least": 100, "deferred": 0.3}
    assert [words.for_canary(bounds, canary)["least"] for canary in (0, 5, 60, 1000)] == [100, 10, 30, 100]
    assert words.for_canary({}, 60) == {}


def test_who_wants_no_mail_by_the_list() -> None:
    """As other programs export it; nothing is left out by itself, but it is said how."""
    counts = {"enabled": 5, "blocklisted": 2, "Unsubscribed": 1}
    said = 'status says that some want no mail: Unsubscribed (1), blocklisted (2); `--where "status not in'
    assert words.left(counts, "status") == f"{said} ('Unsubscribed', 'blocklisted')\"` leaves them out"
    assert words.left({"enabled": 5, "": 1}, "status") == ""
    names = ("Status", "subscription status", "statuses", "email")
    assert [words.status_column(name) for name in names] == [True, True, False, False]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: words.mapping(["email"], []), "--map 'email' is not NAME=COLUMN"),
        (lambda: words.lanes(["a=0"], []), "--zone 'a=0': give a weight above 0, such as a=2"),
        (lambda: words.lanes(["a", "b"], ["192.0.2.1"]), "name its zone, one of a, b; write ZONE/192.0.2.1"),
        (lambda: words.lanes(["a"], ["c/192.0.2.1"]), "--source names zone c, which no --zone does"),
        (lambda: words.caps(["192.0.2.1=5"]), "--cap '192.0.2.1=5': write ADDRESS/PROVIDER=N,N…"),
        (lambda: words.bounds("late=5%"), "--bounds: 'late=5%' is not a bound"),
        (lambda: words.share("--canary", "200%"), "--canary '200%' is not a share; write 2% or 0.02"),
    ],
)
def test_wrong_words(wrong: Callable[[], object], said: str) -> None:
    """One sentence that shows the right way to write it."""
    with pytest.raises(CommandError) as caught:
        wrong()
    assert said in caught.value.sentence


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("list.csv", "--template", "t", "--name", "a b"), Exit.USAGE, "--name 'a b': name it with up to 63 letters"),
        (("--name", "may", "--plan-only"), Exit.USAGE, "a list and a template are needed"),
        (("--name", "may", "--at", "noon"), Exit.USAGE, "at 'noon' is not a time; write 09:00, 2026-11-24"),
        (("--name", "may", "--at", "best"), Exit.USAGE, "--at best: no recipient's hour is known; name opens with"),
        (("--name", "may", "--window", "9:00-17:00"), Exit.USAGE, "are no hours; write 09:00-17:00 or 'mon-fri"),
        (("--name", "may", "--until", "2020-01-01"), Exit.USAGE, "until '2020-01-01' is in the past"),
        (("--name", "may", "--at", "9:00", "--canary", "2%"), Exit.USAGE, "a canary has no result while --at lets"),
        (("--name", "may", "--nodes", "http://127.0.0.1:1"), Exit.USAGE, "there is no API key for the nodes"),
        (("no.csv", "-t", "t", "--name", "may"), Exit.NO_INPUT, "no.csv: there is no such list; name one that exists"),
        (("no/list", "-t", "t", "--name", "may"), Exit.NO_INPUT, "no/list: there is no such list; name one that"),
        (
            ("twice.CSV", "-t", "t", "--name", "may"),
            Exit.DATA,
            "its header has the columns 'Email' and 'email'; rename",
        ),
        (("good.csv", "--name", "may"), Exit.CONFIG, "the HTTP listener is not enabled; set enabled = true"),
        (("--name", "may", "--plan-only", "--resume"), Exit.NO_INPUT, "there is no plan to continue"),
        (("--name", "may", "--only-recent"), Exit.USAGE, "--only-recent: since when? say within how many days"),
        (("--name", "may", "--recent", "9", "--only-recent"), Exit.USAGE, "--recent: no opens are known; name"),
        ((*PLANNED, "--not-opened", "a", "--not-clicked", "b"), Exit.USAGE, "name two groups of people; choose one"),
        (
            (*PLANNED, "--not-clicked", "b", "--nodes", "http://127.0.0.1:1"),
            Exit.USAGE,
            "--not-clicked reads the journal",
        ),
        ((*PLANNED, "--bounds", "late=5%"), Exit.USAGE, "--bounds: 'late=5%' is not a bound"),
        ((*PLANNED, "--canary", "100%"), Exit.USAGE, "--canary: 100% leaves nothing to send after it"),
        ((*PLANNED, "--seeds", "x@,y"), Exit.USAGE, "--seeds: 'x@' is not an address"),
        ((*PLANNED, "--time-zone", "DE"), Exit.USAGE, "--time-zone: there is no time to go by"),
        ((*PLANNED, "--map", "email"), Exit.USAGE, "--map 'email' is not NAME=COLUMN"),
        ((*PLANNED, "--cap", "192.0.2.1=5"), Exit.USAGE, "--cap '192.0.2.1=5': write ADDRESS/PROVIDER"),
        ((*PLANNED, "--source", "c/192.0.2.1"), Exit.USAGE, "--source names zone c, which no --zone does"),
        (PLANNED, Exit.USAGE, "the template's From is made from fields; name the sender with --sender"),
    ],
)
def test_mistakes_before_anything_starts(
    zonemta: Callable[..., object], arguments: tuple[str, ...], code: Exit, said: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Neither Spark nor a node is asked for what the command line alone shows."""
    monkeypatch.delenv("ZONEMTA_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.csv").write_text("email\n")
    (tmp_path / "t.toml").write_text(TEMPLATE.replace("news@", "{{ city }}@"))
    monkeypatch.setattr("zonemta_py.cli.campaign.work.Work.spark", property(lambda _: pytest.fail("Spark is started")))
    (tmp_path / "twice.CSV").write_text("Email,email\n")
    ran = zonemta("campaign", "send", *arguments, "--plans", tmp_path)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err


def test_orders_and_status_of_this_machines_campaigns(
    told: Callable[..., object], served: Callable[..., object], tmp_path: Path
) -> None:
    """Through the queue's socket, without HTTP: pause, resume, cancel, status and list."""
    (tmp_path / "t.toml").write_text(TEMPLATE)
    packed = prepare(load(tmp_path / "t.toml"), ["name"]).pack()
    one = served(zones=[{"name": "default", "default": True}])
    one.do(lambda queue: queue.ask("campaign-put", name="may", sender="a@b.net", template=packed))
    assert told("campaign", "suspend", "may", "--because", "too fast").out == "may is suspended; 0 recipients wait\n"
    assert json.loads(told("campaign", "status", "may", "--json").out)["cause"] == "too fast"
    assert "suspended: too fast" in told("campaign", "status", "may").out
    assert told("campaign", "resume", "may").out == "may is running; 0 recipients wait\n"
    assert told("campaign", "cancel", "may", "--yes").out == "may is canceled; 0 recipients wait\n"
    assert [row["name"] for row in json.loads(told("campaign", "list", "--json").out)] == ["may"]
    ran = told("campaign", "status", "june")
    assert (ran.code, ran.out) == (Exit.DATA, "")
    assert "june" in ran.err


def test_status_of_a_campaign_with_hours(told: Callable[..., object], served: Callable[..., object]) -> None:
    """When it goes, in words; and who waits for which hour, as a table and as JSON."""
    packed = prepare(TemplateSource("t", Text("Hi"), Text("a@b.net"), text=Text("Hello\n"))).pack()
    day = str(datetime.date.today() + datetime.timedelta(days=20))
    times = {"at": day, "window": "09:00-17:00", "time_zone_column": "tz", "time_zone": "FR"}
    one = served(zones=[{"name": "default", "default": True}])
    one.do(lambda queue: queue.ask("campaign-put", name="may", sender="a@b.net", template=packed, hours=times))
    people = [Recipient(f"r{n}@x.test", values=[zone]) for n, zone in enumerate(("DE", "US", "US", ""))]
    one.do(lambda queue: queue.accept(Envelope("", people, columns=["tz"], campaign="may"), b""))
    shown = told("campaign", "status", "may").out
    assert f"from {day}, in 09:00-17:00, by their own clocks (column tz, else FR)" in " ".join(shown.split())
    assert "not before" in shown
    assert "4 wait for their hour" in shown
    row = json.loads(told("campaign", "status", "may", "--json").out)
    zones = [(one["time_zone"], one["waiting"]) for one in row["scheduled"]["zones"]]
    assert zones == [("Europe/Berlin", 1), ("Europe/Paris", 1), ("America/New_York", 2)]
    ran = told("campaign", "schedule", "may", "--at", "none", "--window", "mon-fri 09:00-17:00")
    assert ran.out == "may goes in mon-fri 09:00-17:00, by their own clocks (column tz, else FR); 4 recipients wait\n"
    assert "nothing is to change" in told("campaign", "schedule", "may").err
    assert "until '2020-01-01' is in the past" in told("campaign", "schedule", "may", "--until", "2020-01-01").err


def test_a_burn_down_fits_a_line() -> None:
    """Whatever its length; the highest is the full block, nothing the lowest."""
    assert sparkline([0, 4, 8]) == "▁▅█"
    assert len(sparkline(list(range(240)))) <= 60


def test_the_names_a_template_uses(tmp_path: Path) -> None:
    """Only these travel with each recipient; one with a default is among them."""
    (tmp_path / "t.toml").write_text(TEMPLATE)
    assert fields(load(tmp_path / "t.toml")) == {"name", "city"}


@pytest.mark.parametrize("suffix", ["jsonl", "NDJSON", "parquet", "Parquet"])
def test_previews_of_other_kinds_of_lists(zonemta: Callable[..., object], tmp_path: Path, suffix: str) -> None:
    """JSON lines and Parquet are read without Spark."""
    rows = [{"email": "a@b.net", "name": "Ann"}, {"email": "c@d.net", "name": "Carl"}]
    file = tmp_path / f"list.{suffix}"
    if suffix.lower() != "parquet":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pa = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pa.Table.from_pylist(rows), file)
    (tmp_path / "t.toml").write_text(TEMPLATE)
    ran = zonemta("campaign", "preview", tmp_path / "t.toml", "--list", file, "--recipient", "C@d.net")
    assert "Subject: Hi Carl\n" in ran.out
    assert "good for all 2 rows" in zonemta("campaign", "check", tmp_path / "t.toml", "--list", file).out


def test_previews_of_lists_that_are_not_sound(zonemta: Callable[..., object], tmp_path: Path) -> None:
    """What `send` refuses, or counts as a bad row, is said here too; bytes that are UTF-8 are text."""
    pa = pytest.importorskip("pyarrow")
    (tmp_path / "t.toml").write_text(TEMPLATE)
    (tmp_path / "twice.csv").write_text("email,name,Name\n")
    rows = [{"email": b"a@b.net", "name": "Jürgen".encode()}, {"email": b"c@d.net", "name": b"\xff"}]
    for name, count in (("good", 1), ("bad", 2)):
        pytest.importorskip("pyarrow.parquet").write_table(
            pa.Table.from_pylist(rows[:count]), tmp_path / f"{name}.parquet"
        )
    said = [zonemta("campaign", "check", tmp_path / "t.toml", "--list", tmp_path / name)
            for name in ("twice.csv", "bad.parquet", "good.parquet")]  # fmt: skip
    assert "the column 'Name' appears twice; rename or remove one of them" in said[0].err
    assert "bad.parquet:2: a value is not UTF-8; write text into its column" in said[1].err
    assert "good for all 1 rows" in said[2].out


def test_without_the_pipeline_it_says_what_to_install(tmp_path: Path) -> None:
    """None of its libraries is there, as after a plain `pip install`."""
    (tmp_path / "list.csv").write_text("email\nann@x.test\n")
    program = (
        "import sys\n"
        "for name in ('numpy', 'pandas', 'pyarrow', 'pyspark'):\n"
        "    sys.modules[name] = None\n"
        "from zonemta_py.__main__ import main\n"
        "sys.exit(main())\n"
    )
    words = ["campaign", "send", "list.csv", "--template", "letter.toml", "--name", "x", "--plan-only"]
    said = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )
    sentence = "zonemta: pyspark, pandas, pyarrow: not installed; `pip install 'zonemta-py[pipeline]'` installs it\n"
    assert (said.returncode, said.stderr) == (69, sentence)
