"""Serves the files of a folder over HTTP: ``python serve_files.py FOLDER [PORT]``

The application uses Starlette. FastAPI accepts `Files` unchanged: ``app.mount("/", Files(…))``.
"""

from __future__ import annotations

import mimetypes
import pathlib
import re
import sys

import nowait
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

CHUNK_BYTES = 256 << 10


class Files:
    """Answers a request with a file of a folder, or a range of it."""

    def __init__(self, folder: str) -> None:
        self.folder = pathlib.Path(folder).resolve()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = scope["path"].removeprefix(scope.get("root_path", ""))
        path = pathlib.Path(f"{self.folder}{name}").resolve()
        if not path.is_relative_to(self.folder) or not path.is_file():
            return await PlainTextResponse("no such file", 404)(scope, receive, send)
        async with nowait.open(path) as file:
            size = await file.size()
            wanted = Request(scope).headers.get("range")
            first, end = bounds(wanted, size)
            if first >= end and wanted:
                return await PlainTextResponse("no such range", 416)(scope, receive, send)
            kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
            headers = {"content-type": kind, "content-length": str(end - first)}
            if wanted:
                headers["content-range"] = f"bytes {first}-{end - 1}/{size}"
            await send(
                {
                    "type": "http.response.start",
                    "status": 206 if wanted else 200,
                    "headers": [(it.encode(), value.encode()) for it, value in headers.items()],
                }
            )
            await send_content(file, first, end, send)


async def send_content(file: nowait.File, first: int, end: int, send: Send) -> None:
    """Send the bytes from ``first`` to ``end``: one part is read while another is sent."""
    ahead = file.read_at(min(CHUNK_BYTES, end - first), first)
    while first < end:
        body = await ahead
        if not body:
            raise OSError(f"{file.name}: it was cut off meanwhile")
        first += len(body)
        ahead = file.read_at(min(CHUNK_BYTES, end - first), first)
        await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def bounds(wanted: str | None, size: int) -> tuple[int, int]:
    """Return begin and end of the range that a client requests."""
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted or "bytes=0-")
    if not found or found.group() == "bytes=-":
        return size, size
    first, last = found.groups()
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(int(last) + 1, size) if last else size


def application(folder: str) -> Starlette:
    """Return the application; further routes go beside the files."""
    return Starlette(routes=[Mount("/files", Files(folder))])


if __name__ == "__main__":
    uvicorn.run(application(sys.argv[1]), port=int(sys.argv[2]) if len(sys.argv) > 2 else 8000)
