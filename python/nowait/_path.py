"""Paths whose methods that access the file system are awaited."""

from __future__ import annotations

import functools
import itertools
import pathlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from ._loop import on_thread
from ._open import Opening, open
from ._whole import read_bytes, read_text, write_bytes, write_text

# Methods whose results are paths, or contain paths.
PATHS = "absolute cwd expanduser home readlink rename replace resolve"
OTHERS = (
    "chmod exists group hardlink_to is_block_device is_char_device is_dir is_fifo is_file "
    "is_junction is_mount is_socket is_symlink lchmod lstat mkdir owner rmdir samefile stat "
    "symlink_to touch unlink"
)
ITERATORS = "glob iterdir rglob walk"

# Number of entries of a folder that one call on a thread fetches.
BATCH = 256


class Path(pathlib.PurePosixPath):
    """A path with the methods that `pathlib.Path` has up to Python 3.13. Methods that access the
    file system are awaited.

    `iterdir`, `glob`, `rglob` and `walk` are for ``async for``. `open`, `read_bytes`, `read_text`,
    `write_bytes` and `write_text` use nowait.
    """

    __slots__ = ()

    def open(self, mode: str = "r", *args: Any, **options: Any) -> Opening[Any]:
        return open(self, mode, *args, **options)

    read_bytes = read_bytes
    read_text = read_text
    write_bytes = write_bytes
    write_text = write_text


def _plain(value: Any) -> Any:
    return pathlib.Path(value) if isinstance(value, Path) else value


async def _on_thread(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    return await on_thread(functools.partial(function, *map(_plain, arguments), **options))


def _method(name: str, gives_paths: bool) -> Any:
    function = getattr(pathlib.Path, name)

    async def method(self: Any, *arguments: Any, **options: Any) -> Any:
        # If the method is a class method, `self` is the class.
        if isinstance(self, type):
            result, kind = await _on_thread(function, *arguments, **options), self
        else:
            result, kind = await _on_thread(function, self, *arguments, **options), type(self)
        return kind(result) if gives_paths else result

    described = functools.wraps(function)(method)
    return classmethod(described) if name in ("cwd", "home") else described


def _iterator(name: str) -> Any:
    function = getattr(pathlib.Path, name)

    async def method(self: Path, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        kind = type(self)
        found: Iterator[Any] = iter(await _on_thread(function, self, *arguments, **options))
        # A walk fetches one folder at a time, because the program may change the list of folders in
        # which the walk continues.
        count = 1 if name == "walk" else BATCH
        while batch := await _on_thread(list, itertools.islice(found, count)):
            for one in batch:
                yield (kind(one[0]), *one[1:]) if name == "walk" else kind(one)

    return functools.wraps(function)(method)


for _name in (PATHS + " " + OTHERS + " " + ITERATORS).split():
    if hasattr(pathlib.Path, _name):
        _made = _iterator(_name) if _name in ITERATORS.split() else None
        setattr(Path, _name, _made or _method(_name, _name in PATHS.split()))
