"""Streams of bytes: a position, data read ahead, and data written behind."""

from __future__ import annotations

import errno
import io
import os
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from ._loop import Lock, begun, end_of, let_others_run, to_its_end
from ._nowait import LineIterator, Lines, Operation, RawFile, finish

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")

# Size of a read ahead: it doubles each time, up to the maximum. A seek past the data read ahead
# resets it to the minimum. A larger read is not faster: its data and the lines made of it would not
# fit into the processor's caches.
AHEAD_BYTES_MIN, AHEAD_BYTES_MAX = 16 << 10, 64 << 10
# A read of more bytes than this takes no more memory than the file has bytes.
SURE_BYTES = 1 << 20
# Size of a read that looks for the end of a line if nothing is read ahead.
LINE_BYTES = 8 << 10
# Number of bytes gathered before a write.
BEHIND_BYTES = 64 << 10

# Streams that may have gathered data when the program ends.
_writers: weakref.WeakSet[Stream] = weakref.WeakSet()


class Stream(RawFile):
    """The methods of a file with a position, as `io.BufferedRandom` has them.

    The stream either reads or writes. Reading, `_ahead` has the data that follows the position, and
    `_end` is the offset behind that data. Writing, `_behind` is the gathered data that no write
    carries yet, and `_end` is the offset where it goes; `_late` is the write in flight.

    Code that changes `_end` or switches between reading and writing holds the lock. Data read ahead
    is taken, and data to write is gathered, without the lock and without an `await`, so that each
    result is one piece.
    """

    mode: str
    _appends: bool
    _can_read: bool
    _can_write: bool

    def _set_up(self, kind: str, buffering: int, durable: bool) -> None:
        self._can_read = kind[0] == "r" or "+" in kind
        self._can_write = kind[0] != "r" or "+" in kind
        self._appends = kind[0] == "a"
        self._ahead: Lines[bytes] = Lines(b"", "\n")
        self._ahead_bytes = AHEAD_BYTES_MIN if buffering else 0
        self._behind: bytearray | None = None
        # 1 means line buffering in text files, and has no meaning for bytes.
        self._behind_bytes = BEHIND_BYTES if buffering < 0 or buffering == 1 else buffering
        if durable:
            self._behind_bytes = 0
        self._late: Operation[int] | None = None
        self._end = 0
        self._lock = Lock()
        if self._appends:
            self._behind = bytearray()
            _writers.add(self)

    # Reading.

    async def read(self, size: int | None = -1, /) -> bytes:
        """Read ``size`` bytes; fewer only at the end of the file. Without a size: everything."""
        if size is not None and 0 < size <= len(self._ahead):
            return self._ahead.take(size)
        async with self._lock:
            await self._turn_to_reading()
            if size is None or size < 0:
                wanted = 0
                while await self._fill(wanted or LINE_BYTES):
                    wanted = 1 << 62
                return self._ahead.take(-1)
            while len(self._ahead) < size and await self._fill(size - len(self._ahead)):
                pass
            return self._ahead.take(size)

    async def read1(self, size: int = -1, /) -> bytes:
        """Return data read ahead, at most ``size`` bytes; if there is none, read from the file
        once."""
        async with self._lock:
            await self._turn_to_reading()
            if not len(self._ahead) and size:
                await self._fill(max(size, LINE_BYTES))
            return self._ahead.take(size)

    async def readall(self) -> bytes:
        """Read everything that follows."""
        return await self.read()

    async def readinto(self, buffer: Buffer, /) -> int:
        """Read into the whole of a buffer; fewer bytes only at the end of the file."""
        with memoryview(buffer) as view, view.cast("B") as octets:
            if octets.readonly:
                raise TypeError("readinto() argument must be read-write bytes-like object")
            data = await self.read(len(octets))
            octets[: len(data)] = data
            return len(data)

    async def peek(self, size: int = 0, /) -> bytes:
        """Return the data read ahead, and keep the position; if there is none, read from the file
        once."""
        async with self._lock:
            await self._turn_to_reading()
            if not len(self._ahead):
                await self._fill(max(size, LINE_BYTES))
            return self._ahead.peek()

    async def readline(self, size: int | None = -1, /) -> bytes:
        """Read a line, or at most ``size`` bytes of it; ``b""`` at the end of the file."""
        limit = -1 if size is None else size
        line = self._ahead.line(limit)
        if line is not None and line:
            return line
        async with self._lock:
            await self._turn_to_reading()
            while True:
                line = self._ahead.line(limit)
                if line is not None:
                    return line
                # Read as many bytes as are read ahead already, so that finding the end of a long
                # line takes linear time.
                if not await self._fill(max(len(self._ahead), LINE_BYTES)):
                    line = self._ahead.line(limit)
                    return self._ahead.take(-1) if line is None else line

    async def readlines(self, hint: int | None = -1, /) -> list[bytes]:
        """Read all lines, or lines until they have more than ``hint`` bytes together."""
        if hint is None or hint <= 0:
            return io.BytesIO(await self.read()).readlines()
        lines: list[bytes] = []
        while hint >= 0 and (line := await self.readline()):
            lines.append(line)
            hint -= len(line)
        return lines

    def __aiter__(self) -> AsyncIterator[bytes]:
        return LineIterator(self._ahead, self.__anext__)

    async def __anext__(self) -> bytes:
        # Let other tasks run after each part of the file.
        await let_others_run()
        if line := await self.readline():
            return line
        raise StopAsyncIteration

    async def _fill(self, wanted: int) -> bool:
        """Read ahead ``wanted`` bytes or more; return false at the end of the file. Fewer bytes may
        come before bytes that cannot be read: only the next read then raises the error."""
        wanted = max(wanted, self._ahead_bytes)
        self._ahead_bytes = min(2 * self._ahead_bytes, AHEAD_BYTES_MAX)
        if wanted > SURE_BYTES:
            wanted = min(wanted, max(await self.size() - self._end, AHEAD_BYTES_MAX))
        alignment, _ = self.alignment or (1, 1)
        before = self._end % alignment
        wanted += -(before + wanted) % alignment
        data = await self.read_at(before + wanted, self._end - before)
        if before:
            data = data[before:]
        self._ahead.fill(data)
        self._end += len(data)
        return bool(data)

    async def _turn_to_reading(self) -> None:
        self._check_open()
        if not self._can_read:
            raise io.UnsupportedOperation("not readable")
        while self._behind is not None:
            await self._write_out()
            if self._appends:
                self._end = await self.size()
            if not self._behind:
                self._behind = None

    # Writing.

    async def write(self, data: Buffer, /) -> int:
        """Write all of ``data`` at the position; return the number of bytes.

        The stream buffers the data, and writes its buffer to the file when it is full, and for a
        `flush`, `seek`, `truncate`, sync, `close` or read. If this write fails, the next call that
        waits for the write raises the error.
        """
        count = len(data) if isinstance(data, bytes) else memoryview(data).nbytes
        if not self._gather(data, count):
            # Copy data that is not `bytes`, because the program may change it once this call has
            # returned.
            whole = data if isinstance(data, bytes) else bytes(data)
            await self._write_in_turn(lambda: whole)
        return count

    def _gather(self, data: Buffer, count: int) -> bool:
        """Gather ``data`` of ``count`` bytes and return true. Return false if the caller has to
        wait first."""
        behind = self._behind
        if behind is not None and len(behind) + count <= self._behind_bytes:
            behind += data
            return True
        if not count and self._can_write:
            self._check_open()
            return True  # and stay: to append nothing does not go to the end
        return False

    async def _write_in_turn(self, make: Callable[[], bytes]) -> None:
        """Write the bytes that ``make`` returns. Call ``make`` after all waits, so that a write of
        another task, or a cancellation, comes before this call or after it.
        """
        async with self._lock:
            self._check_open()
            self._turn_to_writing()
            await self._settle()
            self._check_open()
            data = make()
            if not self._gather(data, len(data)):
                self._send(data)
            if not self._behind_bytes:
                await self._settle()

    async def writelines(self, lines: Iterable[Buffer], /) -> None:
        """Write lines, which have their line ends, one after another."""
        for line in lines:
            await self.write(line)

    async def flush(self) -> None:
        """Write all buffered data to the file. This does not make them durable: use `sync`."""
        self._check_open()
        if self._is_unwritten():
            async with self._lock:
                await self._write_out()

    async def _hand_over(self) -> None:
        """Begin to write the gathered data, after the write in flight has ended."""
        await self._settle()
        self._check_open()
        self._send()

    def _send(self, more: bytes = b"") -> None:
        """Begin to write the gathered data and ``more`` behind it; no other write is in flight."""
        behind = self._gathered()
        if behind:
            behind += more
        self._late = self.write_at(behind or more, self._end)
        self._end += len(behind or more)
        self._behind = bytearray()

    async def _settle(self) -> None:
        """Wait for the write in flight. Cancelling the wait does not cancel the write."""
        if self._late is not None:
            late = self._late
            await end_of(late)
            # Clear this only now: if the wait is cancelled, the next task must still learn the
            # result of the write.
            self._late = None
            late.result()

    async def _write_out(self) -> None:
        # Repeat if tasks have gathered more meanwhile.
        while self._is_unwritten():
            if self._behind:
                await self._hand_over()
            await self._settle()

    def _is_unwritten(self) -> bool:
        return bool(self._behind) or self._late is not None

    def _gathered(self) -> bytearray:
        assert self._behind is not None
        return self._behind

    def _turn_to_writing(self) -> None:
        if not self._can_write:
            raise io.UnsupportedOperation("not writable")
        if self.alignment is not None:
            raise io.UnsupportedOperation("a direct file is written by write_at")
        if self._behind is None:
            self._end -= len(self._ahead)
            self._ahead.clear()
            self._behind = bytearray()
            _writers.add(self)

    def _save(self) -> None:
        """Write the gathered data, and block until they are written: no task is left to write
        them."""
        behind, self._behind = self._behind, None
        if behind and self.is_open:
            if self._late is not None:
                finish(self._late)  # an append comes behind the one before
            self.write_now(bytes(behind), self._end)

    # The position.

    async def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to an offset from the beginning, the position, or the end; return the new position."""
        async with self._lock:
            self._check_open()
            if whence == os.SEEK_CUR:
                offset += await self._position()
            elif whence == os.SEEK_END:
                await self._write_out()
                offset += await self.size()
            elif whence != os.SEEK_SET:
                raise ValueError(f"whence value {whence} unsupported")
            await self._write_out()
            if offset < 0:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            skipped = offset - (self._end - len(self._ahead))
            if self._behind is None and 0 <= skipped <= len(self._ahead):
                self._ahead.take(skipped)
            else:
                self._behind = None
                self._ahead.clear()
                self._ahead_bytes = min(self._ahead_bytes, AHEAD_BYTES_MIN)
                self._end = offset
            return offset

    async def tell(self) -> int:
        """Return the position: the offset of the next byte."""
        self._check_open()
        async with self._lock:
            return await self._position()

    async def _position(self) -> int:
        if self._behind is None:
            return self._end - len(self._ahead)
        if not self._appends:
            return self._end + len(self._behind)
        # The end includes data that other programs have appended.
        await self._write_out()
        return await self.size()

    def truncate(self, size: int | None = None, /) -> Awaitable[int]:
        """Cut the file off at ``size`` bytes, or extend it with zeroes; return the size.

        The default size is the position, which does not change.
        """
        self._check_open()
        if not self._can_write:
            raise io.UnsupportedOperation("truncate")
        if size is not None and size < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if size is not None and not self._is_unwritten() and not len(self._ahead):
            return self.resize(size)
        return begun(self._truncate(size))

    async def _truncate(self, size: int | None) -> int:
        async with self._lock:
            self._check_open()
            await self._write_out()
            position = await self._position()
            if self._behind is None:
                self._ahead.clear()
                self._end = position
            return await self.resize(position if size is None else size)

    # Methods of the file that must first write the gathered data.

    def sync(self) -> Awaitable[None]:
        """Make all written data and the metadata durable: fsync(2)."""
        return self._after_writing(super().sync)

    def datasync(self) -> Awaitable[None]:
        """Make the written data durable, and the metadata needed to read them: fdatasync(2)."""
        return self._after_writing(super().datasync)

    def sync_range(self, offset: int, length: int = 0) -> Awaitable[None]:
        """Make ``length`` bytes from ``offset`` on durable; with length 0 everything from
        ``offset`` on."""
        sync = super().sync_range
        return self._after_writing(lambda: sync(offset, length))

    def close(self) -> Awaitable[None]:
        """Write the buffered data to the file, and close it.

        Requests in flight continue. The last close of a file with the cache `user` also writes the
        data that nowait has cached, and raises the error if this write fails. If the wait is
        cancelled, the writes continue, and then the file is closed.
        """
        if self._is_unwritten():
            # `at_end` runs even if the task is cancelled before its first step.
            return begun(to_its_end(self._close), at_end=self._close_now)
        return self._close_now()

    async def _close(self) -> None:
        try:
            await self.flush()
        except Exception:
            self._behind = None  # lost, as with `io`
            await self._close_now()
            raise
        except BaseException:
            self._close_now()
            raise
        await self._close_now()

    def _close_now(self) -> Operation[None]:
        """Begin to write the gathered data, for which no task waits, and close the file."""
        behind, self._behind = self._behind, None
        self._ahead.clear()
        if behind and self.is_open:
            self.write_at(behind, self._end)
        return self.close_at()

    def _after_writing(self, request: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        async def write_first() -> T:
            await self.flush()
            return await request()

        return begun(write_first()) if self._is_unwritten() else request()

    # Facts.

    def readable(self) -> bool:
        """Return true if the file was opened for reading."""
        self._check_open()
        return self._can_read

    def writable(self) -> bool:
        """Return true if the file was opened for writing."""
        self._check_open()
        return self._can_write

    def seekable(self) -> bool:
        """Return true."""
        self._check_open()
        return True

    def isatty(self) -> bool:
        """Return true if the file is a terminal."""
        return os.isatty(self.fileno())

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


def save_all() -> None:
    """Write the gathered data of streams that were not closed. Called at the exit."""
    for stream in list(_writers):
        try:
            stream._save()
        except OSError:
            sys.excepthook(*sys.exc_info())  # and go on: others can be written




def forget_all() -> None:
    """Drop the gathered data of streams in a forked child, because the parent process writes these
    data."""
    for stream in list(_writers):
        stream._behind = stream._late = None
    _writers.clear()
