"""Templates from files; nothing else in merge/ reads any.

A template is a folder with template.toml, such a file by itself, or one file that looks like a mail: header fields, an
empty line, a body (HTML where Content-Type says text/html), all in Jinja2. File names are relative to the template's
folder. Failures: TemplateRefused for faults; OSError for files that cannot be read.
"""

from __future__ import annotations

import mimetypes
import re
import tomllib
from pathlib import Path
from typing import Any

from zonemta_py.merge.limits import FILES_BYTES_MAX
from zonemta_py.merge.problems import TemplateProblem, TemplateRefused
from zonemta_py.merge.source import File, TemplateSource, Text

TEXT_BYTES_MAX = 1024 * 1024
_KEYS = {"subject": str, "from": str, "reply_to": str, "to_name": str, "list_unsubscribe": str, "one_click": bool,
         "text": str, "html": str, "mjml": str, "headers": dict, "attachments": list, "images": dict}  # fmt: skip
_OWN_FIELDS = frozenset(
    {"content-type", "from", "list-unsubscribe", "list-unsubscribe-post", "reply-to", "subject", "to"}
)
_IGNORED_FIELDS = frozenset({"content-transfer-encoding", "mime-version"})
_FIELD = re.compile(r"([!-9;-~]+):[ \t]*(.*(?:\n[ \t].*)*)\n?")
_LINE = re.compile(r"\((?:at line (\d+), column (\d+)|at end of document)\)")


def load(path: Path) -> TemplateSource:
    """Raises TemplateRefused, OSError."""
    file = path / "template.toml" if path.is_dir() else path
    return _Toml(file).source() if file.suffix == ".toml" else _mail(file)


def _read_text(file: Path) -> str:
    content = file.read_bytes()
    if len(content) > TEXT_BYTES_MAX:
        raise _refused(file, 0, 0, f"the file has {len(content):,} bytes; use {TEXT_BYTES_MAX:,} at most")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _refused(file, line, 1, "the file is not UTF-8; save it in that encoding") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _refused(file: Path, line: int, column: int, sentence: str) -> TemplateRefused:
    return TemplateRefused([TemplateProblem(str(file), line, column, sentence)])


class _Toml:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._written = _read_text(file)
        try:
            self._table: dict[str, Any] = tomllib.loads(self._written)
        except tomllib.TOMLDecodeError as error:
            at = _LINE.search(str(error))
            line, column = (int(at[1]), int(at[2])) if at and at[1] else (self._written.count("\n") + 1, 1)
            said = _LINE.sub("", str(error)).strip()
            raise _refused(
                file, line, column, f"this is not TOML: {said[0].lower()}{said[1:]}; correct it here"
            ) from None

    def source(self) -> TemplateSource:
        problems = self._wrong_keys()
        if problems:
            raise TemplateRefused(problems)
        table = self._table
        return TemplateSource(
            file=str(self._file),
            subject=self._text("subject"),
            sender=self._text("from"),
            reply_to=self._optional("reply_to"),
            to_name=self._optional("to_name"),
            list_unsubscribe=self._optional("list_unsubscribe"),
            one_click=table.get("one_click", False),
            headers=tuple((name, self._at(name, value)) for name, value in table.get("headers", {}).items()),
            text=self._body("text"),
            html=self._body("html"),
            mjml=self._body("mjml"),
            attachments=self._files({Path(name).name: name for name in table.get("attachments", [])}),
            images=self._files(table.get("images", {})),
        )

    def _wrong_keys(self) -> list[TemplateProblem]:
        found = []
        for key, value in self._table.items():
            if key not in _KEYS:
                found.append(self._problem(key, f"there is no key {key}; the keys are {', '.join(_KEYS)}"))
            elif type(value) is not _KEYS[key]:
                found.append(self._problem(key, f"{key} is a {_KEYS[key].__name__}; write it as one"))
        for key in ("subject", "from"):
            if not self._table.get(key):
                found.append(TemplateProblem(str(self._file), 0, 0, f'{key} is missing; write {key} = "…"'))
        for key in ("headers", "images", "attachments"):
            value = self._table.get(key, ())
            if not all(isinstance(one, str) for one in (value.values() if isinstance(value, dict) else value)):
                found.append(self._problem(key, f"the value of {key} is text; put it in quotes"))
        if "html" in self._table and "mjml" in self._table:
            found.append(self._problem("html", "html is made from mjml; give one of the two"))
        return found

    def _place(self, key: str) -> tuple[int, int]:
        """Where the key's value begins; 1, 1 if the key's notation is not recognised here."""
        found = re.search(
            rf'^[ \t]*["\']?{re.escape(key)}["\']?[ \t]*=[ \t]*("""\n?|\'\'\'\n?|["\'])?', self._written, re.M
        )
        return Text(self._written).place(found.end()) if found else (1, 1)

    def _problem(self, key: str, sentence: str) -> TemplateProblem:
        return TemplateProblem(str(self._file), *self._place(key), sentence)

    def _at(self, key: str, content: str) -> Text:
        return Text(content, str(self._file), *self._place(key))

    def _text(self, key: str) -> Text:
        return self._at(key, self._table[key])

    def _optional(self, key: str) -> Text | None:
        return self._text(key) if key in self._table else None

    def _body(self, key: str) -> Text | None:
        """A value of several lines, or in triple quotes, is the text itself; any other names a file."""
        value = self._table.get(key)
        if value is None:
            return None
        if "\n" in value or re.search(rf'^[ \t]*["\']?{key}["\']?[ \t]*=[ \t]*("""|\'\'\')', self._written, re.M):
            return self._at(key, value)
        file = self._inside(key, value)
        if not file.is_file():
            sentence = f'there is no file {file}; correct the name, or write the text itself between """ and """'
            raise TemplateRefused([self._problem(key, sentence)])
        return Text(_read_text(file), str(file))

    def _files(self, names: dict[str, str]) -> tuple[File, ...]:
        files, size = [], 0
        for name, place in names.items():
            key = "attachments" if name == Path(place).name else name
            file = self._inside(key, place)
            self._must_exist(key, file)
            size += file.stat().st_size
            if size > FILES_BYTES_MAX:
                raise TemplateRefused(
                    [
                        self._problem(
                            name, f"files have more than {FILES_BYTES_MAX:,} bytes together; link to some of them"
                        )
                    ]
                )
            kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            files.append(File(name, kind, file.read_bytes()))
        return tuple(files)

    def _inside(self, key: str, name: str) -> Path:
        """A file of the template's folder: neither .. nor a symbolic link may lead out of it."""
        folder = self._file.parent
        file = folder / name
        if not file.resolve().is_relative_to(folder.resolve()):
            raise TemplateRefused([self._problem(key, f"{name} is outside the template's folder; copy it into it")])
        return file

    def _must_exist(self, key: str, file: Path) -> None:
        if not file.is_file():
            raise TemplateRefused([self._problem(key, f"there is no file {file}; correct the name, or put it there")])


def _mail(file: Path) -> TemplateSource:
    written = _read_text(file)
    fields, headers, end = _mail_fields(file, written)
    kind = fields["content-type"].content.partition(";")[0].strip().lower()
    if kind not in ("text/plain", "text/html"):
        line, column = fields["content-type"].line, fields["content-type"].column
        raise _refused(
            file,
            line,
            column,
            f"a body must be text/plain or text/html, not {kind}; for more parts, use a folder with template.toml",
        )
    for name in ("subject", "from"):
        if name not in fields:
            raise _refused(file, 0, 0, f"{name.title()} is missing; write {name.title()}: … at the top")
    body = Text(written[end:], str(file), *Text(written).place(end))
    to = fields.get("to")
    to_name = to.content.rpartition("<")[0].strip().strip('"') if to else ""
    return TemplateSource(
        file=str(file),
        subject=fields["subject"],
        sender=fields["from"],
        reply_to=fields.get("reply-to"),
        to_name=Text(to_name, to.file, to.line, to.column) if to and to_name else None,
        list_unsubscribe=_bare(fields.get("list-unsubscribe")),
        one_click="list-unsubscribe-post" in fields,
        headers=tuple(headers),
        text=body if kind == "text/plain" else None,
        html=body if kind == "text/html" else None,
    )


def _bare(url: Text | None) -> Text | None:
    """Without the angle brackets that a header field has around a URL."""
    if url is None or not url.content.startswith("<"):
        return url
    return Text(url.content[1:].removesuffix(">"), url.file, url.line, url.column + 1)


def _mail_fields(file: Path, written: str) -> tuple[dict[str, Text], list[tuple[str, Text]], int]:
    """The fields this program makes itself, the others, and where the body begins."""
    fields = {"content-type": Text("text/plain", str(file))}
    headers: list[tuple[str, Text]] = []
    position = 0
    while not written.startswith("\n", position) and position < len(written):
        found = _FIELD.match(written, position)
        if found is None:
            line, _ = Text(written).place(position)
            raise _refused(
                file, line, 1, "this is neither a header field nor the empty line before the body; correct it"
            )
        content = re.sub(r"\n[ \t]+", " ", found[2])
        value = Text(content, str(file), *Text(written).place(found.start(2)))
        if found[1].lower() in _OWN_FIELDS:
            fields[found[1].lower()] = value
        elif found[1].lower() not in _IGNORED_FIELDS:
            headers.append((found[1], value))
        position = found.end()
    return fields, headers, position + 1
