"""Whole files, by path."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from . import _nowait
from ._nowait import Operation

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._file import StrOrBytesPath


def read_bytes(path: StrOrBytesPath) -> Operation[bytes]:
    """Read a whole file."""
    return _nowait.read_whole(os.fsdecode(path))


async def read_text(
    path: StrOrBytesPath,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> str:
    """Read a whole file as text, utf-8 unless ``encoding`` is given."""
    data = await read_bytes(path)
    return io.TextIOWrapper(io.BytesIO(data), encoding or "utf-8", errors, newline).read()


def write_bytes(path: StrOrBytesPath, data: Buffer, *, atomic: bool = False) -> Operation[int]:
    """Write a new file, or replace the content of an existing one; return the number of bytes.

    ``atomic`` writes a second file in the same folder, makes it durable, and renames it to the
    path. So the path has the complete old or new content at every moment, also after a crash. The
    new file gets the permissions and the owner of the old one.
    """
    return _nowait.write_whole(os.fsdecode(path), data, atomic)


async def write_text(
    path: StrOrBytesPath,
    text: str,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    *,
    atomic: bool = False,
) -> int:
    """Write text, utf-8 unless ``encoding`` is given; return the number of characters."""
    encoded = io.BytesIO()
    writer = io.TextIOWrapper(encoded, encoding or "utf-8", errors, newline)
    writer.write(text)
    writer.flush()
    await write_bytes(path, encoded.getbuffer(), atomic=atomic)
    return len(text)


def copy(source: StrOrBytesPath, destination: StrOrBytesPath) -> Operation[int]:
    """Copy content and permissions to a new or existing file; return the number of bytes."""
    return _nowait.copy_whole(os.fsdecode(source), os.fsdecode(destination))
