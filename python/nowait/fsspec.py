"""A file system for fsspec, ``nowait://``: local files, read and written by nowait. ::

    fsspec.filesystem("nowait", asynchronous=True)     # _cat_file, _cat_ranges, _pipe_file, …
    fsspec.filesystem("nowait").cat_ranges(paths, starts, ends)

nowait reads and writes content; fsspec's local file system handles names and copies, on threads if
awaited. This module needs fsspec.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
from collections.abc import Iterable
from typing import Any

from fsspec.asyn import (  # type: ignore[import-untyped]
    AsyncFileSystem,
    _run_coros_in_chunks,
)
from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

from ._loop import on_thread
from ._open import open
from ._whole import read_bytes

def _on_thread(name: str) -> Any:
    """Return an awaitable form of a method of the local file system."""
    method = getattr(LocalFileSystem, name)

    async def awaited(self: FileSystem, *arguments: Any, **options: Any) -> Any:
        return await on_thread(functools.partial(method, self, *arguments, **options))

    return functools.wraps(method)(awaited)


class FileSystem(AsyncFileSystem, LocalFileSystem):  # type: ignore[misc]
    """Local files for fsspec: the methods of its file systems, and awaitable forms of these, which
    begin with an underscore.

    ``auto_mkdir``: make missing folders of written files, as file systems of object stores do.
    """

    protocol = "nowait"

    def __init__(self, auto_mkdir: bool = True, **options: Any) -> None:
        super().__init__(auto_mkdir=auto_mkdir, **options)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return super()._strip_protocol(path)

    async def _ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        return await on_thread(functools.partial(self.ls, path, detail, **options))

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        path = self._strip_protocol(path)
        if start is None and end is None:
            return await read_bytes(path)
        (part,) = await read_ranges(path, [(start, end)])
        return part

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: int | None | Iterable[int | None],
        ends: int | None | Iterable[int | None],
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[bytes | BaseException]:
        """Read ranges of many files concurrently: the ranges of one file in one submission."""
        if max_gap is not None:
            raise NotImplementedError("max_gap is not supported")
        if not isinstance(paths, list):
            raise TypeError(f"paths must be a list, not {type(paths).__name__}")
        firsts = list(starts) if isinstance(starts, Iterable) else [starts] * len(paths)
        lasts = list(ends) if isinstance(ends, Iterable) else [ends] * len(paths)
        if not len(paths) == len(firsts) == len(lasts):
            raise ValueError("as many starts and ends as paths")
        indices: dict[str, list[int]] = {}
        for index, path in enumerate(paths):
            indices.setdefault(self._strip_protocol(path), []).append(index)
        results: list[bytes | BaseException] = [b""] * len(paths)

        async def read(path: str, wanted: list[int]) -> None:
            parts: Iterable[bytes | BaseException]
            try:
                parts = await read_ranges(path, [(firsts[at], lasts[at]) for at in wanted])
            except OSError as error:
                if on_error == "raise":
                    raise
                parts = [error] * len(wanted)
            for at, part in zip(wanted, parts):
                results[at] = part

        # The reads run concurrently, up to the limit of open files.
        reads = [read(path, wanted) for path, wanted in indices.items()]
        await _run_coros_in_chunks(reads, batch_size)
        return results

    async def _pipe_file(
        self, path: str, value: bytes, mode: str = "overwrite", **_: Any
    ) -> None:
        path = await self._ready(path)
        async with open(path, "xb" if mode == "create" else "wb", 0) as file:
            await file.write(value)

    async def open_async(self, path: str, mode: str = "rb", **options: Any) -> Any:
        """Open a file: a `nowait.File`, or a `nowait.TextFile`."""
        path = self._strip_protocol(path) if mode == "rb" else await self._ready(path)
        return await open(path, mode, **options)

    async def _ready(self, path: str) -> str:
        """Return the path of a file about to be written, in an existing folder."""
        path = self._strip_protocol(path)
        if self.auto_mkdir:
            await on_thread(lambda: os.makedirs(self._parent(path), exist_ok=True))
        return path

    async def _get_file(self, rpath: str, lpath: Any, **_: Any) -> None:
        if isinstance(lpath, (str, os.PathLike)):
            await self._cp_file(rpath, os.fspath(lpath))
        else:
            lpath.write(await self._cat_file(rpath))

    async def _put_file(self, lpath: str, rpath: str, mode: str = "overwrite", **_: Any) -> None:
        if mode == "create" and await self._exists(rpath):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), rpath)
        await self._cp_file(lpath, rpath)


for _name in (
    "chmod cp_file created info isdir isfile islink lexists makedirs mkdir modified rm rm_file "
    "rmdir symlink touch"
).split():
    setattr(FileSystem, "_" + _name, _on_thread(_name))


async def read_ranges(path: str, ranges: list[tuple[int | None, int | None]]) -> list[bytes]:
    """Read parts of a file like slices: a negative number counts from the end, `None` is the
    end."""
    async with open(path) as file:
        # Only ranges counted from the end need the size.
        plain = all((first or 0) >= 0 and last is not None and last >= 0 for first, last in ranges)
        size = sys.maxsize if plain else await file.size()
        bounds = [slice(first, last).indices(size)[:2] for first, last in ranges]
        return await file.read_many([(first, max(0, last - first)) for first, last in bounds])
