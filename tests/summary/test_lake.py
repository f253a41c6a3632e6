"""Summaries answer what the lake answers, of journals with all that makes counting hard."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from zonemta_py.disk.frame import frame
from zonemta_py.journal import segments
from zonemta_py.pipeline.erasure.archive import erase_archive
from zonemta_py.pipeline.erasure.person import DataSubject, pseudonym

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIALS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture(scope="module")
def trial() -> "Iterator[tuple[object, object]]":
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(TRIALS / "trials"), str(TRIALS / "pipeline"), *sys.path])
        import summaries
        import summary_lake

        yield summaries, summary_lake


@pytest.fixture(scope="module")
def folder(trial, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two queues with attempts of ten hours."""
    place = tmp_path_factory.mktemp("mta")
    assert trial[0].make(place, 6_000, 4_000) > 5_000
    return place


def test_every_answer_is_the_lakes(spark: "SparkSession", trial, folder: Path) -> None:
    assert trial[1].compare(folder, spark) == []


def test_records_that_are_twice_in_the_archive_count_once(spark: "SparkSession", trial, folder: Path) -> None:
    """A write that failed is repeated in a new file; here from the middle of a segment on."""
    archive = folder / "archive"
    path = segments.files(archive)[1]
    records = list(segments.read_file(path, []))
    half = records[len(records) // 2 :]
    (archive / f"{half[0].seq:016d}{segments.SUFFIX}").write_bytes(frame(half, 0))
    before = trial[1].of_summaries(folder)
    assert trial[1].compare(folder, spark) == []
    assert sum(map(sum, before["attempts"].values())) > 5_000


def test_erased_people_count_as_in_the_lake(spark: "SparkSession", trial, folder: Path) -> None:
    archive = folder / "archive"
    trial[1].of_summaries(folder)
    bounced = next(key for key in trial[1].of_summaries(folder)["replies"] if "user0" in key[3] and key[1] == "bounced")
    address = next(word.strip("<>:()") for word in bounced[3].split() if "@" in word)
    person = DataSubject(address, pseudonym())
    erased = [place for one in (archive, folder / "queues" / "1" / "archive") for place in erase_archive(one, person)]
    assert erased
    assert trial[1].compare(folder, spark) == []
    assert not any(address in key[3] for key in trial[1].of_summaries(folder)["replies"])
