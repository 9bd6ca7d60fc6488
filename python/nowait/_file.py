"""Open files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Union

from ._nowait import Operation, RawFile

if TYPE_CHECKING:
    StrOrBytesPath = Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]

CacheMode = Literal["host", "user", "direct"]


class File(RawFile):
    """An open file whose requests name their offset, made by `open`.

    There is no position, and requests may be in flight side by side. On one file, those that
    overlap, one of them a write, take effect in the order in which they were made; a sync covers
    the writes made before it.

    Each method returns an `Operation`, which has begun: await it, or give it to `asyncio.gather`
    and the like. If it is cancelled, by ``asyncio.timeout`` for example, its memory stays with the
    engine until it has ended; a write may have happened, in part or whole.
    """

    name: str
    mode: str

    def __init__(
        self,
        path: StrOrBytesPath,
        mode: str = "rb",
        *,
        cache: CacheMode | None = None,
        durable: bool = False,
        permissions: int = 0o666,
    ) -> None:
        self.name = os.fsdecode(path)
        self.mode = mode
        self._how = _how(mode) + ("s" if durable else "")
        self._cache = cache
        self._permissions = permissions

    def _open(self) -> Operation[File]:
        return self.open_at(self.name, self._how, self._cache, self._permissions)

    def truncate(self, size: int) -> Operation[int]:
        """Cut the file off at ``size`` bytes, or extend it with zeroes; return the size."""
        return self.resize(size)

    def close(self) -> Operation[None]:
        """Close the file, once what is cached of it by nowait is in the file.

        Requests in flight go on. Errors of that writing are told by `sync` only.
        """
        return self.close_at()

    async def __aenter__(self) -> File:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if self.is_open:
            warnings.warn(f"unclosed file {self!r}", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        closed = " closed" if self.closed else ""
        return f"<nowait.File {self.name!r} mode={self.mode!r}{closed}>"


class Opening:
    """A file about to be opened: ``await`` it, or use it in ``async with``."""

    __slots__ = ("_file",)

    def __init__(self, file: File) -> None:
        self._file = file

    def __await__(self) -> Generator[Any, None, File]:
        return self._file._open().__await__()

    async def __aenter__(self) -> File:
        return await self._file._open()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._file.close()


def open(
    path: StrOrBytesPath,
    mode: str = "rb",
    *,
    cache: CacheMode | None = None,
    durable: bool = False,
    permissions: int = 0o666,
) -> Opening:
    """Open a file, as a context manager or to be awaited.

    ``mode`` is ``rb``, ``wb``, ``xb`` or one of them with ``+``, as that of the built-in ``open``.

    ``cache`` says who caches the file: ``host``, the kernel, shared with all programs; ``user``,
    nowait itself, in the process, for files that no other program changes meanwhile; ``direct``,
    nothing: offsets and lengths are multiples of ``File.alignment``. Without it that is ``host``,
    or what the environment variable ``NOWAIT_CACHE`` says.

    ``durable`` makes every write durable before it ends; a new file gets ``permissions``, less the
    umask. Failures are those of ``open``, an ``OSError`` each.
    """
    return Opening(File(path, mode, cache=cache, durable=durable, permissions=permissions))


def _how(mode: str) -> str:
    letters = sorted(mode)
    kind = "".join(letter for letter in letters if letter in "rwx")
    if len(kind) != 1 or len(set(letters)) != len(letters) or set(letters) - set("rwxb+"):
        raise ValueError(f"mode must be one of 'rb', 'wb', 'xb', perhaps with '+', not {mode!r}")
    return kind + ("+" if "+" in mode else "")
