"""Opens files. The name comes from aiofiles: threads serve only files that nowait does not open."""

from __future__ import annotations

import asyncio
import builtins
import io
import os
import stat
import sys
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from ..base import AiofilesContextManager, AsyncBase, AsyncIndirectBase
from ..base import wrap as _call
from .binary import AsyncBufferedIOBase, AsyncBufferedReader, AsyncFileIO
from .text import AsyncTextIOWrapper

__all__ = (
    "open",
    "stderr",
    "stderr_bytes",
    "stdin",
    "stdin_bytes",
    "stdout",
    "stdout_bytes",
)

AsyncFile = AsyncTextIOWrapper | AsyncBufferedIOBase | AsyncFileIO


def open(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Callable[[str, int], int] | None = None,
    *,
    loop: asyncio.AbstractEventLoop | None = None,
    executor: Executor | None = None,
) -> AiofilesContextManager[Any]:
    """Open a file, with the arguments of the built-in ``open``; await the result, or use it in
    ``async with``.

    ``loop`` and ``executor`` are for files that threads open: descriptors, pipes, terminals, and
    files with an ``opener``.
    """
    text = (encoding, errors, newline)
    if isinstance(file, int) or opener is not None or not closefd:
        call = _call(builtins.open)
        opening = call(
            file, mode, buffering, *text, closefd, opener, loop=loop, executor=executor
        )
        return AiofilesContextManager(_threaded(opening, loop, executor))
    return AiofilesContextManager(_open(file, mode, buffering, text, loop, executor))


async def _open(
    path: Any,
    mode: str,
    buffering: int,
    text: tuple[str | None, str | None, str | None],
    loop: asyncio.AbstractEventLoop | None,
    executor: Executor | None,
) -> AsyncFile | AsyncBase:
    file = _native(path, mode, buffering, text)
    await file._open()
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    # A pipe or a terminal has no offsets, so threads serve a duplicate of its descriptor. A second
    # open would be visible to its peer.
    try:
        plain = builtins.open(os.dup(file.fileno()), mode, buffering, *text)
    finally:
        await file.close()
    return AsyncBase(plain, loop, executor)


def _native(
    path: Any, mode: str, buffering: int, text: tuple[str | None, str | None, str | None]
) -> AsyncFile:
    if "b" not in mode:
        encoding, errors, newline = text
        # A type checker knows this function only from 3.11 on.
        encoding = io.text_encoding(encoding)  # type: ignore[attr-defined,unused-ignore]
        return AsyncTextIOWrapper(path, mode, buffering, encoding, errors, newline, cache="host")
    if text != (None, None, None):
        raise ValueError("binary mode doesn't take an encoding, errors or newline argument")
    if buffering == 0:
        return AsyncFileIO(path, mode, buffering, cache="host")
    kind = AsyncBufferedReader if "r" in mode or "+" in mode else AsyncBufferedIOBase
    return kind(path, mode, buffering, cache="host")


async def _threaded(
    opening: Any, loop: asyncio.AbstractEventLoop | None, executor: Executor | None
) -> AsyncBase:
    return AsyncBase(await opening, loop, executor)


def wrap(
    file: Any,
    *,
    loop: asyncio.AbstractEventLoop | None = None,
    executor: Executor | None = None,
) -> AsyncBase:
    """Give an open file of ``io`` awaitable methods, each a call on a thread."""
    if not isinstance(file, io.IOBase):
        raise TypeError(f"Unsupported io type: {file}.")
    return AsyncBase(file, loop, executor)


def _standard(name: str, indirect: Callable[[], Any]) -> AsyncIndirectBase:
    return AsyncIndirectBase(name, None, None, indirect)


stdin = _standard("sys.stdin", lambda: sys.stdin)
stdout = _standard("sys.stdout", lambda: sys.stdout)
stderr = _standard("sys.stderr", lambda: sys.stderr)
stdin_bytes = _standard("sys.stdin.buffer", lambda: sys.stdin.buffer)
stdout_bytes = _standard("sys.stdout.buffer", lambda: sys.stdout.buffer)
stderr_bytes = _standard("sys.stderr.buffer", lambda: sys.stderr.buffer)
