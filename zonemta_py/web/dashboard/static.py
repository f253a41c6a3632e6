"""The files that pages need; all of them come from here."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).parent / "static"
KINDS = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}


@cache
def _files() -> dict[str, tuple[str, Path]]:
    """Kind and file by name, of those that are served."""
    files = [path for path in FOLDER.rglob("*") if path.suffix in KINDS]
    return {path.name: (KINDS[path.suffix], path) for path in files}


@cache
def _content(path: Path) -> tuple[str, bytes]:
    content = path.read_bytes()
    return f'"{hashlib.sha256(content).hexdigest()[:20]}"', content


async def serve(request: Request) -> Response:
    """A browser that has it is told to use that."""
    kind, path = _files().get(request.path_params["name"], ("", FOLDER))
    if not kind:
        return Response(status_code=404)
    tag, content = _content(path)
    headers = {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)
