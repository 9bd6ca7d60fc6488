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
    """Read all of a file."""
    return _nowait.read_whole(os.fsdecode(path))


async def read_text(
    path: StrOrBytesPath,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> str:
    """Read all of a file as text, decoded as the built-in ``open`` does it."""
    data = await read_bytes(path)
    return io.TextIOWrapper(io.BytesIO(data), encoding or "utf-8", errors, newline).read()


def write_bytes(path: StrOrBytesPath, data: Buffer, *, atomic: bool = False) -> Operation[int]:
    """Write a file that is new, or emptied first; return how many bytes.

    ``atomic`` writes another file beside it, makes that durable, and gives it the name: the path
    has the old content or the new, whole, at every moment and after a crash. The permissions of the
    old file are kept.
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
    """Write text, encoded as the built-in ``open`` does it; return how many characters."""
    encoded = io.BytesIO()
    writer = io.TextIOWrapper(encoded, encoding or "utf-8", errors, newline)
    writer.write(text)
    writer.flush()
    await write_bytes(path, encoded.getbuffer(), atomic=atomic)
    return len(text)


def copy(source: StrOrBytesPath, destination: StrOrBytesPath) -> Operation[int]:
    """Copy a file and its permissions; return how many bytes. A file that is there is replaced."""
    return _nowait.copy_whole(os.fsdecode(source), os.fsdecode(destination))
