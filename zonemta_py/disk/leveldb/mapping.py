"""Keeps LevelDB from mapping its table files into memory: they are read with pread instead.

LevelDB maps up to 1,000 tables, and offers no option against it. Every page it ever touched, and a compaction touches
all of its input, then counts as this process's memory until the table is deleted: 40 to 100 MB under large messages,
and the page faults cost more than the copy they save. The bound is a variable, `g_mmap_limit`, that is read when the
first database is opened; this sets it to 0.

The variable is found by its name in the symbol table of the loaded library and must hold the value it is known to have.
Where it is not found (LevelDB linked otherwise, stripped, another version) nothing is changed: it costs memory, nothing
else.
"""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

_SYMBOL = b"_ZN7leveldb12_GLOBAL__N_112g_mmap_limitE"
_KNOWN_VALUE = 1000
_SECTION = struct.Struct("<IIQQQQIIQQ")
_ENTRY = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE = 2


def forbid() -> bool:
    """Call before the first database is opened. True if LevelDB will map nothing."""
    found = _library()
    if found is None:
        return False
    path, base = found
    offset = _offset(path.read_bytes())
    if offset is None:
        return False
    limit = ctypes.c_int.from_address(base + offset)
    if limit.value not in (_KNOWN_VALUE, 0):
        return False
    limit.value = 0
    return True


def _library() -> tuple[Path, int] | None:
    """The loaded LevelDB and where its first page is."""
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                path = line.rstrip("\n").partition("/")
                if "libleveldb" in path[2] and line.split(" ")[2] == "00000000":
                    return Path("/" + path[2]), int(line.split("-")[0], 16)
    except OSError:
        return None
    return None


def _offset(image: bytes) -> int | None:
    """The variable's address in the library, from its ELF symbol table (System V ABI, 64 bits, little-endian)."""
    if image[:6] != b"\x7fELF\x02\x01":
        return None
    table, size, count = struct.unpack_from("<Q", image, 0x28)[0], *struct.unpack_from("<HH", image, 0x3A)
    sections = [_SECTION.unpack_from(image, table + index * size) for index in range(count)]
    for _, kind, _, _, start, length, link, *_ in sections:
        if kind != _SYMBOL_TABLE:
            continue
        names, names_length = sections[link][4:6]
        name = image.find(b"\0" + _SYMBOL + b"\0", names, names + names_length) + 1 - names
        for entry in _ENTRY.iter_unpack(image[start : start + length]):
            if entry[0] == name > 0:
                return int(entry[4])
    return None
