"""The function that opens files."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from ._file import CacheMode, File
from ._text import TextFile

if TYPE_CHECKING:
    from ._file import StrOrBytesPath

F = TypeVar("F", File, TextFile)

BinaryMode = Literal[
    "rb", "br", "rb+", "r+b", "+rb", "br+", "b+r", "+br",
    "wb", "bw", "wb+", "w+b", "+wb", "bw+", "b+w", "+bw",
    "xb", "bx", "xb+", "x+b", "+xb", "bx+", "b+x", "+bx",
    "ab", "ba", "ab+", "a+b", "+ab", "ba+", "b+a", "+ba",
]  # fmt: skip
TextMode = Literal[
    "r", "r+", "+r", "rt", "tr", "rt+", "r+t", "+rt", "tr+", "t+r", "+tr",
    "w", "w+", "+w", "wt", "tw", "wt+", "w+t", "+wt", "tw+", "t+w", "+tw",
    "x", "x+", "+x", "xt", "tx", "xt+", "x+t", "+xt", "tx+", "t+x", "+tx",
    "a", "a+", "+a", "at", "ta", "at+", "a+t", "+at", "ta+", "t+a", "+ta",
]  # fmt: skip


class Opening(Generic[F]):
    """A file about to be opened: ``await`` it, or use it in ``async with``."""

    __slots__ = ("_file",)

    def __init__(self, file: F) -> None:
        self._file: F = file

    def __await__(self) -> Generator[Any, None, F]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> F:
        try:
            return await self._file._open()
        except BaseException:
            # The open has failed, or the task was cancelled, perhaps after the file was opened. The
            # program has no file to close.
            self._file.abandon()
            raise

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._file.close()


@overload
def open(
    path: StrOrBytesPath,
    mode: BinaryMode = "rb",
    buffering: int = -1,
    *,
    cache: CacheMode | None = None,
    durable: bool = False,
    permissions: int = 0o666,
) -> Opening[File]: ...
@overload
def open(
    path: StrOrBytesPath,
    mode: TextMode,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    *,
    cache: CacheMode | None = None,
    durable: bool = False,
    permissions: int = 0o666,
) -> Opening[TextFile]: ...
@overload
def open(
    path: StrOrBytesPath,
    mode: str,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    *,
    cache: CacheMode | None = None,
    durable: bool = False,
    permissions: int = 0o666,
) -> Opening[Any]: ...
def open(
    path: StrOrBytesPath,
    mode: str = "rb",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    *,
    cache: CacheMode | None = None,
    durable: bool = False,
    permissions: int = 0o666,
) -> Opening[Any]:
    """Open a file; await the result, or use it in ``async with``.

    ``mode`` is the mode of the built-in ``open``: ``r``, ``w``, ``x`` or ``a``, perhaps with ``+``.
    With ``b`` it opens a `File` of bytes, which also takes positional requests; without it, a
    `TextFile`. The default differs: ``rb``.

    ``encoding``, ``errors`` and ``newline`` work as in the built-in ``open``; the default encoding
    is utf-8. ``buffering`` is the size of the write buffer in bytes: 0, no buffer; -1, 64 KiB; 1,
    64 KiB, and a file of text also writes the buffer after each line.

    ``cache`` is the cache through which the file is read and written: ``host``, the kernel's,
    shared with all programs; ``user``, nowait's own, in the process, for files that no other
    program changes meanwhile; ``direct``, none: offsets and lengths are multiples of
    ``File.alignment[0]``. The default is ``host``, or the value of the environment variable
    ``NOWAIT_CACHE``.

    ``durable`` makes every write durable before it ends; a new file gets ``permissions``, less the
    umask. Errors are those of ``open``, as ``OSError``.
    """
    if "b" not in mode:
        return Opening(
            TextFile(
                path,
                mode,
                buffering,
                encoding,
                errors,
                newline,
                cache=cache,
                durable=durable,
                permissions=permissions,
            )
        )
    for name, value in (("encoding", encoding), ("errors", errors), ("newline", newline)):
        if value is not None:
            raise ValueError(f"binary mode doesn't take an argument {name!r}")
    return Opening(
        File(path, mode, buffering, cache=cache, durable=durable, permissions=permissions)
    )
