"""Templates from files: a folder, a TOML file, a file like a mail."""

from pathlib import Path

import pytest

from zonemta_py.merge import load as loading
from zonemta_py.merge.compile import compile
from zonemta_py.merge.load import load
from zonemta_py.merge.problems import TemplateRefused
from zonemta_py.merge.source import File, TemplateSource, Text

HEAD = 'subject = "S"\nfrom = "News <news@example.com>"\n'


def write(folder: Path, content: str | bytes, name: str = "template.toml") -> Path:
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def test_the_shipped_example() -> None:
    """A folder; everything in it is read once, and survives being stored."""
    source = load(Path("config/newsletter"))
    assert source.mjml
    assert source.mjml.file == "config/newsletter/letter.mjml"
    assert [(one.name, one.kind) for one in source.attachments] == [("programme.ics", "text/calendar")]
    assert [(one.name, one.kind) for one in source.images] == [("logo", "image/png")]
    assert TemplateSource.unpack(source.pack()) == source


def test_inline_texts_know_their_place(tmp_path: Path) -> None:
    """Line and column in the TOML file, for problems in them."""
    file = write(tmp_path, HEAD + 'text = """\nHello\n"""\n[headers]\nX-A = "b"\n')
    source = load(file)
    assert source.subject == Text("S", str(file), 1, 12)
    assert source.text == Text("Hello\n", str(file), 4, 1)
    assert source.headers == (("X-A", Text("b", str(file), 7, 8)),)


def test_texts_in_files(tmp_path: Path) -> None:
    """Line ends become LF, a byte order mark is no text."""
    write(tmp_path, b"\xef\xbb\xbfa\r\nb\rc", "t.txt")
    (tmp_path / "x.bin").write_bytes(b"\0\1")
    source = load(write(tmp_path, HEAD + 'text = "t.txt"\nattachments = ["x.bin"]'))
    assert source.text == Text("a\nb\nc", str(tmp_path / "t.txt"))
    assert source.attachments == (File("x.bin", "application/octet-stream", b"\0\1"),)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("subject = \n", r"template.toml:1:11: this is not TOML: invalid value; correct it here"),
        ("subject = [", r":1:\d+: this is not TOML"),
        ('subject = "x"', "from is missing; write from = "),
        (HEAD + 'txt = "x"', r":3:8: there is no key txt; the keys are subject, from"),
        (HEAD + "one_click = 1", r":3:13: one_click is a bool"),
        (HEAD + "attachments = [1]", "the value of attachments is text"),
        (HEAD + "[headers]\nX-A = 1", "the value of headers is text"),
        (HEAD + 'html = "a"\nmjml = "b"', "html is made from mjml; give one of the two"),
        (HEAD + 'text = "gone.txt"', r":3:9: there is no file .*gone.txt; correct the name"),
        (HEAD + 'attachments = ["gone.pdf"]', r":3:1\d: there is no file .*gone.pdf"),
        (HEAD + '[images]\nlogo = "gone.png"', r":4:9: there is no file .*gone.png"),
        (b"# \xff", r":1:1: the file is not UTF-8; save it in that encoding"),
    ],
)
def test_mistakes_in_a_toml_file(tmp_path: Path, content: str | bytes, said: str) -> None:
    """File, line, column, remedy."""
    with pytest.raises(TemplateRefused, match=said):
        load(write(tmp_path, content))


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of texts and of the files together."""
    monkeypatch.setattr(loading, "FILES_BYTES_MAX", 10)
    (tmp_path / "a").write_bytes(bytes(6))
    (tmp_path / "b").write_bytes(bytes(6))
    with pytest.raises(TemplateRefused, match="files have more than 10 bytes together; link to some"):
        load(write(tmp_path, HEAD + 'text = """a\n"""\nattachments = ["a", "b"]'))
    monkeypatch.setattr(loading, "TEXT_BYTES_MAX", 10)
    with pytest.raises(TemplateRefused, match="use 10 at most"):
        load(write(tmp_path, HEAD))


def test_a_file_like_a_mail(tmp_path: Path) -> None:
    """Fields, an empty line, a body; folds are undone, lines counted on."""
    mail = (
        "From: News <news@example.com>\nSubject: Hello\n {{ name }}\nTo: {{ name }} <x@example.com>\n"
        "List-Unsubscribe: <https://example.com/u>\nX-A: b\nMIME-Version: 1.0\n"
        "Content-Type: text/html\n\n<p>\n{{ nme }}"
    )
    source = load(write(tmp_path, mail, "letter.eml"))
    assert source.subject.content == "Hello {{ name }}"
    assert source.to_name
    assert source.to_name.content == "{{ name }}"
    assert source.list_unsubscribe
    assert source.list_unsubscribe.content == "https://example.com/u"
    assert [name for name, _ in source.headers] == ["X-A"]
    assert source.text is None
    assert source.html
    assert source.html.place(source.html.content.index("nme")) == (11, 4)
    made = compile(source).render({"name": "Ada", "nme": "1"}, "ada@example.com", "may", "now")
    assert b"Subject: Hello Ada\r\n" in made
    assert b"To: Ada <ada@example.com>\r\n" in made


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("Subject: x\nhello\n\n", r":2:1: this is neither a header field nor the empty line"),
        ("Subject: x\n\nhello", "From is missing; write From: … at the top"),
        ("From: a@b.c\nSubject: x\nContent-Type: multipart/mixed\n\n", r":3:15: a body must be text/plain or"),
    ],
)
def test_mistakes_in_a_file_like_a_mail(tmp_path: Path, content: str, said: str) -> None:
    """File, line, remedy."""
    with pytest.raises(TemplateRefused, match=said):
        load(write(tmp_path, content, "letter.eml"))


def test_files_are_those_of_the_folder(tmp_path: Path) -> None:
    """Neither .. nor a link, nor a whole path, brings in a file from elsewhere: a template may be a stranger's."""
    (tmp_path / "secret.txt").write_text("secret")
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "own.txt").write_text("own")
    (folder / "alias.txt").symlink_to("own.txt")
    for name in ("../secret.txt", "link.txt", str(tmp_path / "secret.txt")):
        for key in (f"text = '{name}'", f"text = 'own.txt'\nattachments = ['{name}']", f"images = {{ a = '{name}' }}"):
            with pytest.raises(TemplateRefused, match="is outside the template's folder; copy it into it"):
                load(write(folder, HEAD + key))
    assert load(write(folder, HEAD + "text = 'alias.txt'")).text == Text("own", str(folder / "alias.txt"))


def test_a_text_in_place_of_a_files_name_is_told_how_to_be_written(tmp_path: Path) -> None:
    """Who writes text = "Hallo" means the text."""
    with pytest.raises(TemplateRefused, match='or write the text itself between """ and """'):
        load(write(tmp_path, HEAD + 'text = "Hallo"'))
