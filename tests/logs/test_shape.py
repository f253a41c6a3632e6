"""Log lines made quickly are those that a plain way makes, whatever is in them."""

import json
import re
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from zonemta_py.logs.shape import FREE, as_json, as_text

ODD = st.sampled_from(
    ["", " ", '"', "\\", "%", "%s", "\n", "\r\n", "\x00", "\x1b[2J", "\x7f", "\x9b", "é", "\u2028", "=", "a b"]
)
WORDS = st.one_of(
    st.text(max_size=20), st.lists(st.one_of(ODD, st.sampled_from(["250", "ok", "<a@b.test>"]))).map("".join)
)
PLAIN = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters='"'), max_size=20)


class _OfPlugin:
    """A value that no format knows."""

    def __init__(self, said: str) -> None:
        self.said = said

    def __repr__(self) -> str:
        return self.said


VALUES = st.one_of(
    PLAIN, WORDS, st.none(), st.booleans(), st.integers(), st.floats(), st.binary(max_size=8), WORDS.map(_OfPlugin),
    st.lists(WORDS, max_size=3), st.dictionaries(WORDS, st.integers(), max_size=2), st.just("\udcff"),
)  # fmt: skip
NAMES = st.one_of(st.sampled_from(["id", "to", "delay_s", FREE, "time", "50%", "a b", "ü"]), WORDS)
FIELDS = st.dictionaries(NAMES, VALUES, max_size=6)
MOMENTS = st.integers(0, 4_102_444_800_000)


def _plain_one_line(text: str) -> str:
    lines = text.split("\n")
    return "\n".join(re.sub("[\x00-\x1f\x7f-\x9f\u2028\u2029]", lambda at: ascii(at[0])[1:-1], line) for line in lines)


def _plain_quoted(value: Any, always: bool) -> str:
    text = str(value)
    if not always and all("!" <= one <= "~" and one != '"' for one in text):
        return text
    return json.dumps(text).replace("\x7f", "\\u007f")


def _plain_moment(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)) + f".{ms % 1000:03d}Z"


def _plain_text(ms: int, level: str, logger: str, message: str, fields: dict[str, Any]) -> bytes:
    words = [_plain_moment(ms), level.upper(), f"{logger}: {_plain_one_line(message)}"]
    words += [f"{_plain_one_line(name)}={_plain_quoted(one, False)}" for name, one in fields.items() if name != FREE]
    if fields.get(FREE) is not None:
        words.append(f"{FREE}={_plain_quoted(fields[FREE], True)}")
    return f"{' '.join(words)}\n".encode(errors="backslashreplace")


@given(MOMENTS, st.sampled_from(["info", "warning"]), WORDS, FIELDS)
def test_text_is_what_a_plain_way_makes(ms: int, level: str, message: str, fields: dict[str, Any]) -> None:
    """Each value by itself is quoted where it has to be; and the same again, from what was kept of the first time."""
    expected = _plain_text(ms, level, "mail", message, fields)
    assert as_text(ms, level, "mail", message, dict(fields)) == expected
    assert as_text(ms, level, "mail", message, dict(fields)) == expected


@given(MOMENTS, WORDS, st.dictionaries(NAMES.filter(lambda name: name != "time"), VALUES, max_size=6))
def test_json_is_one_object_with_what_was_said(ms: int, message: str, fields: dict[str, Any]) -> None:
    """Whatever a plugin calls level and logger; what JSON has no form for is shown as it looks."""
    level, logger = 'in"fo', "back\\slash\n"
    line = as_json(ms, level, logger, message, fields)
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    entry = json.loads(line)
    wanted = {"time": _plain_moment(ms), "level": level, "logger": logger, "message": message} | fields
    assert list(entry) == list(wanted)
    try:
        json.dumps(wanted, allow_nan=False).encode()
        exact = all(isinstance(one, str | None | bool) for one in wanted.values()) and "\\ud" not in ascii(wanted)
    except (TypeError, ValueError):
        exact = False
    if exact:
        assert entry == wanted
