"""Files of text: decoded from a stream of bytes, and encoded into it."""

from __future__ import annotations

import codecs
import io
import os
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Union

from ._file import CacheMode, File, kind
from ._loop import Lock, let_others_run
from ._nowait import LineIterator, Lines
from ._stream import AHEAD_BYTES_MAX

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._file import StrOrBytesPath

Decoder = Union[codecs.IncrementalDecoder, io.IncrementalNewlineDecoder]

# A position of text is an offset in bytes; if the decoder needs its state there, also the number of
# characters to skip, and that state.
OFFSET_BITS, SKIP_BITS = 64, 64


class Mark(NamedTuple):
    """A point where decoding can start again."""

    offset: int
    state: int
    """State of the decoder without the bytes that it holds back. The offset is before these
    bytes."""
    data: bytes


class TextFile:
    """An open file of text, made by `open`, with awaited methods of `io.TextIOWrapper`.

    `buffer` is the file of bytes below; its positional requests see text written here after
    `flush`. A file of text belongs to one event loop at a time.
    """

    def __init__(
        self,
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
    ) -> None:
        how = kind(mode)
        if buffering == 0:
            raise ValueError("can't have unbuffered text I/O")
        # This wrapper refuses the arguments that the built-in `open` refuses, and resolves names
        # such as "locale".
        model = io.TextIOWrapper(io.BytesIO(), encoding or "utf-8", errors, newline)
        self.mode = mode
        self.encoding: str = model.encoding
        self.errors: str = model.errors or "strict"
        self.line_buffering = buffering == 1
        self._newline = newline
        self._line_end = os.linesep if newline is None else newline or "\n"
        self._decoder = self._new_decoder() if how[0] == "r" or "+" in how else None
        self._encoder: codecs.IncrementalEncoder | None = None
        # Decoded text that no call has taken, and the marks where decoding can start again, each
        # with its place in that text.
        self._ahead: Lines[str] = Lines("", "\n" if newline is None else newline)
        self._marks: list[tuple[int, Mark]] = []
        self._lock = Lock()
        self.buffer = File(
            path, how + "b", buffering, cache=cache, durable=durable, permissions=permissions
        )

    def _new_decoder(self) -> Decoder:
        decoder = codecs.getincrementaldecoder(self.encoding)(self.errors)
        if self._newline:
            return decoder
        return io.IncrementalNewlineDecoder(decoder, translate=self._newline is None)

    async def _open(self) -> Self:
        await self.buffer._open()
        return self

    def abandon(self) -> None:
        self.buffer.abandon()

    # Reading.

    async def read(self, size: int | None = -1, /) -> str:
        """Read ``size`` characters; fewer only at the end of the file. Without a size:
        everything."""
        if size is not None and 0 < size <= len(self._ahead):
            return self._ahead.take(size)
        async with self._lock:
            decoder = await self._turn_to_reading()
            if size is None or size < 0:
                text = decoder.decode(await self.buffer.read(), True)
                text = self._ahead.take(-1) + text
                self._ahead.clear()
                self._marks = [(0, await self._mark())]
                return text
            while len(self._ahead) < size and await self._fill(size - len(self._ahead)):
                pass
            return self._ahead.take(size)

    async def readline(self, size: int | None = -1, /) -> str:
        """Read a line, or at most ``size`` characters of it; ``""`` at the end of the file."""
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
                # Read as many characters as are read ahead already, so that finding the end of a
                # long line takes linear time.
                if not await self._fill(len(self._ahead)):
                    line = self._ahead.line(limit)
                    return self._ahead.take(-1) if line is None else line

    async def readlines(self, hint: int | None = -1, /) -> list[str]:
        """Read all lines, or lines until they have more than ``hint`` characters together."""
        lines: list[str] = []
        if hint is None or hint <= 0:
            rest = Lines("", "\n" if self._newline is None else self._newline)
            rest.fill(await self.read())
            while (line := rest.line()) is not None:
                lines.append(line)
            return lines + [rest.take(-1)] if len(rest) else lines
        while hint >= 0 and (line := await self.readline()):
            lines.append(line)
            hint -= len(line)
        return lines

    def __aiter__(self) -> AsyncIterator[str]:
        return LineIterator(self._ahead, self.__anext__)

    async def __anext__(self) -> str:
        # Let other tasks run after each part of the file.
        await let_others_run()
        if line := await self.readline():
            return line
        raise StopAsyncIteration

    async def _fill(self, wanted: int) -> bool:
        """Decode about ``wanted`` more characters; return true if there were any."""
        decoder = await self._turn_to_reading()
        mark = await self._mark()
        kept, _ = decoder.getstate()
        if wanted > AHEAD_BYTES_MAX:
            data = await self.buffer.read(wanted)
        else:
            data = await self.buffer.read1()
        taken, rest = self._ahead.taken, len(self._ahead)
        self._ahead.fill(decoder.decode(data, not data))
        # The marks from which the remaining text was decoded, and the new one.
        marks = [(place - taken, known) for place, known in self._marks] if rest else []
        while len(marks) > 1 and marks[1][0] <= 0:
            del marks[0]
        self._marks = [*marks, (rest, mark._replace(data=kept + data))]
        return bool(data)

    async def _turn_to_reading(self) -> Decoder:
        self._check_open()
        if self._decoder is None:
            raise io.UnsupportedOperation("not readable")
        return self._decoder

    # Writing.

    async def write(self, text: str, /) -> int:
        """Write all of ``text`` at the position; return the number of characters.

        The stream buffers the text, and writes its buffer to the file when it is full, and for a
        `flush`, `seek`, `truncate`, sync, `close` or read. If that fails, the next call that waits
        for it raises the error.
        """
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        encoder = self._encoder
        if encoder is None or self._marks:
            async with self._lock:
                encoder = await self._turn_to_writing()
        translated = text
        if self._line_end != "\n" and "\n" in text:
            translated = text.replace("\n", self._line_end)
        state = encoder.getstate()
        try:
            data = encoder.encode(translated)
        except UnicodeError:
            encoder.setstate(state)
            raise
        if not self.buffer._gather(data, len(data)):
            # Set the encoder's state only when the write begins: other tasks may write first, and
            # after a cancellation nothing is written.
            encoder.setstate(state)
            await self.buffer._write_in_turn(lambda: encoder.encode(translated))
        if self.line_buffering and ("\n" in text or "\r" in text):
            await self.flush()
        return len(text)

    async def writelines(self, lines: Iterable[str], /) -> None:
        """Write lines, which have their line ends, one after another."""
        for line in lines:
            await self.write(line)

    async def flush(self) -> None:
        """Write all buffered text to the file. This does not make it durable: use `sync`."""
        await self.buffer.flush()

    async def _turn_to_writing(self) -> codecs.IncrementalEncoder:
        self._check_open()
        if not self.buffer.writable():
            raise io.UnsupportedOperation("not writable")
        if self._marks:
            await self.buffer.seek(await self._offset())
            self._forget()
            assert self._decoder is not None
            self._decoder.reset()
        if self._encoder is None:
            self._encoder = codecs.getincrementalencoder(self.encoding)(self.errors)
            # The encoder must write a byte order mark only at the beginning of the file.
            if await self.buffer.tell():
                self._encoder.setstate(0)
        return self._encoder

    # The position.

    async def seek(self, position: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to the beginning, the end, or a position from `tell`; return the new position."""
        async with self._lock:
            self._check_open()
            if whence == os.SEEK_CUR:
                if position:
                    raise io.UnsupportedOperation("can't do nonzero cur-relative seeks")
                position = await self._position()
            elif whence == os.SEEK_END:
                if position:
                    raise io.UnsupportedOperation("can't do nonzero end-relative seeks")
                position = await self.buffer.seek(0, os.SEEK_END)
            elif whence != os.SEEK_SET:
                raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
            if position < 0:
                raise ValueError(f"negative seek position {position!r}")
            offset = position & ((1 << OFFSET_BITS) - 1)
            skip = position >> OFFSET_BITS & ((1 << SKIP_BITS) - 1)
            state = position >> (OFFSET_BITS + SKIP_BITS)
            await self._go(offset, state)
            await self._skip(skip)
            return position

    async def _go(self, offset: int, state: int) -> None:
        await self.buffer.seek(offset)
        self._forget()
        self._encoder = None
        if self._decoder is not None:
            self._decoder.reset()
            if offset:
                self._decoder.setstate((b"", state))
            self._marks = [(0, Mark(offset, state, b""))] if state else []

    async def _skip(self, count: int) -> None:
        while len(self._ahead) < count:
            if not await self._fill(count - len(self._ahead)) and len(self._ahead) < count:
                raise OSError("can't restore logical file position")
        if count:
            self._ahead.take(count)

    async def tell(self) -> int:
        """Return the position, for `seek`.

        The position is the offset of the next byte if the decoder needs no state there and
        translates no lines.
        """
        self._check_open()
        async with self._lock:
            return await self._position()

    async def _position(self) -> int:
        if not self._marks:
            return await self.buffer.tell()
        place, mark = 0, await self._mark()
        if len(self._ahead):
            taken = self._ahead.taken
            place, mark = [known for known in self._marks if known[0] <= taken][-1]
            place = taken - place
        if place:
            exact = self._exact(mark, place)
            if exact is not None:
                return exact
        elif not mark.offset:
            return 0
        return mark.offset | place << OFFSET_BITS | mark.state << (OFFSET_BITS + SKIP_BITS)

    def _exact(self, mark: Mark, count: int) -> int | None:
        """Return the offset of the byte after ``count`` characters, if the decoder needs no state
        there."""
        plain = codecs.getincrementaldecoder(self.encoding)(self.errors)
        plain.setstate((b"", mark.state if self._newline else mark.state >> 1))
        text, size = plain.decode(mark.data), count
        if self._newline is None:
            # Each "\r\n" has become one character.
            while (more := count + text.count("\r\n", 0, size + 1)) != size:
                size = more
        # The guess assumes that encoding reverses decoding; the following decode checks it.
        size = len(text[:size].encode(self.encoding, "replace"))
        decoder = self._new_decoder()
        decoder.setstate((b"", mark.state))
        if len(decoder.decode(mark.data[:size])) == count and decoder.getstate() == (b"", 0):
            return mark.offset + size
        return None

    async def _offset(self) -> int:
        """Return the position in bytes, or the position of the next character if some are decoded
        already."""
        position = await self._position() if len(self._ahead) else await self.buffer.tell()
        if position >> OFFSET_BITS:
            raise io.UnsupportedOperation("unknown byte position in the middle of text: seek")
        return position

    async def _mark(self) -> Mark:
        assert self._decoder is not None
        kept, state = self._decoder.getstate()
        return Mark(await self.buffer.tell() - len(kept), state, b"")

    def _forget(self) -> None:
        self._ahead.clear()
        self._marks = []

    async def truncate(self, size: int | None = None, /) -> int:
        """Cut the file off at ``size`` bytes, or extend it with zeroes; return the size.

        The default size is the position, which does not change.
        """
        async with self._lock:
            self._check_open()
            if size is None:
                size = await self._offset()
                await self._go(size, 0)
            return await self.buffer.truncate(size)

    # Methods of the file of bytes.

    async def sync(self) -> None:
        """Make all written data and the metadata durable: fsync(2)."""
        await self.buffer.sync()

    async def datasync(self) -> None:
        """Make the written data durable, and the metadata needed to read them: fdatasync(2)."""
        await self.buffer.datasync()

    async def close(self) -> None:
        """Write the buffered text to the file, and close it."""
        self._forget()
        await self.buffer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def name(self) -> str:
        """The path that was passed to `open`."""
        return self.buffer.name

    @property
    def closed(self) -> bool:
        """True if the file was closed."""
        return self.buffer.closed

    @property
    def newlines(self) -> str | tuple[str, ...] | None:
        """The line ends found so far, if they are translated or any of them ends a line."""
        found: str | tuple[str, ...] | None = getattr(self._decoder, "newlines", None)
        return found

    def fileno(self) -> int:
        """Return the descriptor number."""
        return self.buffer.fileno()

    def readable(self) -> bool:
        """Return true if the file was opened for reading."""
        return self.buffer.readable()

    def writable(self) -> bool:
        """Return true if the file was opened for writing."""
        return self.buffer.writable()

    def seekable(self) -> bool:
        """Return true."""
        return self.buffer.seekable()

    def isatty(self) -> bool:
        """Return true if the file is a terminal."""
        return self.buffer.isatty()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def __repr__(self) -> str:
        closed = " closed" if self.closed else ""
        return (
            f"<nowait.TextFile {self.name!r} mode={self.mode!r} encoding={self.encoding!r}{closed}>"
        )
