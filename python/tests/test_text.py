"""Files of text."""

from __future__ import annotations

import io
import itertools
import os
import pathlib
import tempfile
from typing import Any

import anyio
import nowait
import pytest
from conftest import FULL, RUNS, Run, drop_cache
from hypothesis import HealthCheck, given, settings, strategies

ENCODINGS = ["utf-8", "utf-16", "latin-1", "shift_jis", "utf-8-sig", "utf-16-be"]
NEWLINES = [None, "", "\n", "\r", "\r\n"]
PIECES = strategies.lists(
    strategies.one_of(
        strategies.sampled_from(["\n", "\r", "\r\n", "\r\r\n", "a line\n", "é", "日本語\r\n", "\x0b"]),
        strategies.text("abc äπ漢\u2028\x85", max_size=10),
        strategies.sampled_from(["x" * 8191 + "\n", "ö" * 40_000, "many\r\n" * 5000, "z" * 16_383]),
    ),
    max_size=8,
).map("".join)
SIZES = strategies.one_of(strategies.integers(-1, 12), strategies.sampled_from([8192, 30_000]))
STEPS = strategies.one_of(
    strategies.tuples(strategies.sampled_from(["read", "readline", "readlines"]), SIZES),
    strategies.tuples(strategies.just("lines"), strategies.integers(0, 5)),
    # No write is empty, because `io` would then write its byte order mark again.
    strategies.tuples(strategies.just("write"), PIECES.filter(bool)),
    strategies.tuples(strategies.just("return"), strategies.integers(0, 100)),
    strategies.tuples(strategies.sampled_from(["begin", "end", "flush", "tell"]), SIZES),
    strategies.tuples(strategies.just("cut"), strategies.integers(0, 50)),
)


class Model:
    """A file of `io` and a file of nowait, on which a test performs the same steps."""

    def __init__(self, theirs: Any, ours: nowait.TextFile) -> None:
        self.theirs = theirs
        self.ours = ours
        # The positions of both files, and if the last step was a read: `io` cannot write after a
        # read.
        self.positions: list[tuple[int, int]] = [(0, 0)]
        self.has_read = False

    async def seek(self, theirs: int, ours: int, whence: int = 0) -> None:
        self.theirs.seek(theirs, whence)
        await self.ours.seek(ours, whence)
        self.has_read = False

    async def step(self, what: str, value: Any) -> tuple[Any, Any]:
        """Perform a step on both files; return both results."""
        theirs, ours = self.theirs, self.ours
        theirs.flush()  # `io` reads what is still to be overwritten otherwise
        if what in ("read", "readline", "readlines"):
            self.has_read = True
            return getattr(theirs, what)(value), await getattr(ours, what)(value)
        if what == "lines":
            self.has_read = True
            expected = list(itertools.islice(iter(theirs.readline, ""), value))
            return expected, [await ours.readline() for _ in expected]
        if what == "write":
            if self.has_read:
                await self.seek(0, 0, os.SEEK_END)
            self.positions = [(0, 0)]
            return theirs.write(value), await ours.write(value)
        if what == "return":
            await self.seek(*self.positions[value % len(self.positions)])
            self.has_read = True
            return None, None
        if what in ("begin", "end"):
            return None, await self.seek(0, 0, os.SEEK_SET if what == "begin" else os.SEEK_END)
        if what == "cut":
            await self.seek(0, 0)
            self.positions = [(0, 0)]
            return theirs.truncate(value), await ours.truncate(value)
        if what == "tell":
            theirs.flush()
            await ours.flush()
            self.positions.append((theirs.tell(), await ours.tell()))
            return None, None
        return theirs.flush(), await ours.flush()


@settings(
    max_examples=3000 if FULL else 150,
    deadline=None,
    derandomize=not FULL,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    kind=strategies.sampled_from(list(RUNS)),
    mode=strategies.sampled_from(["r", "r+", "w", "w+", "a", "a+"]),
    encoding=strategies.sampled_from(ENCODINGS),
    newline=strategies.sampled_from(NEWLINES),
    begin=PIECES,
    steps=strategies.lists(STEPS, max_size=12),
)
def test_a_text_is_as_one_of_io(
    kind: str,
    mode: str,
    encoding: str,
    newline: str | None,
    begin: str,
    steps: list[tuple[str, Any]],
) -> None:
    async def main(folder: str) -> None:
        ours, theirs = os.path.join(folder, "ours"), os.path.join(folder, "theirs")
        for path in (ours, theirs):
            pathlib.Path(path).write_bytes(begin.encode(encoding, "replace"))
        with open(theirs, mode, -1, encoding, "replace", newline) as expected:
            async with nowait.open(ours, mode, -1, encoding, "replace", newline) as file:
                both = Model(expected, file)
                for what, value in steps:
                    try:
                        result, ours_result = await both.step(what, value)
                    except UnicodeError:
                        assert encoding == "utf-16", "there a byte order mark may be missing"
                        return
                    except io.UnsupportedOperation:
                        if what in ("read", "readline", "readlines", "lines"):
                            assert not file.readable()
                            with pytest.raises(io.UnsupportedOperation):
                                await file.readline()
                        else:
                            assert not file.writable()
                            with pytest.raises(io.UnsupportedOperation):
                                await file.write("x")
                    else:
                        assert ours_result == result, (what, value)
        assert pathlib.Path(ours).read_bytes() == pathlib.Path(theirs).read_bytes()

    with tempfile.TemporaryDirectory(prefix="nowait-python-", dir="/dev/shm") as folder:
        RUNS[kind](main(folder))


@settings(max_examples=1000 if FULL else 100, deadline=None, derandomize=not FULL, database=None)
@given(
    kind=strategies.sampled_from(list(RUNS)),
    encoding=strategies.sampled_from(ENCODINGS),
    newline=strategies.sampled_from(NEWLINES),
    text=PIECES,
    sizes=strategies.lists(strategies.integers(1, 20_000), max_size=5),
)
def test_every_position_leads_back(
    kind: str, encoding: str, newline: str | None, text: str, sizes: list[int]
) -> None:
    async def main() -> None:
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as made:
            made.write(text.encode(encoding, "replace"))
            made.flush()
            async with nowait.open(made.name, "r", -1, encoding, "replace", newline) as file:
                whole = await file.read()
                await file.seek(0)
                at, positions = 0, []
                for size in sizes:
                    positions.append((at, await file.tell()))
                    at += len(await (file.read(size) if size % 2 else file.readline()))
                for at, position in positions:
                    assert await file.seek(position) == position
                    assert await file.read(5) == whole[at : at + 5]
                    await file.seek(position)
                    assert await file.read() == whole[at:]

    RUNS[kind](main())


@pytest.mark.parametrize("newline", NEWLINES)
def test_lines_are_those_of_open(disk: pathlib.Path, run: Run, newline: str | None) -> None:
    text = "one\n\ntwo\r\nthree\rfour\u2028five\x0b\x85 six\r\r\n" + "x" * 70_000 + "\n" * 3 + "end"
    (disk / "file").write_text(text * 20, encoding="utf-8", newline="")
    with open(disk / "file", encoding="utf-8", newline=newline) as expected:
        lines = expected.readlines()
        newlines = expected.newlines

    async def main() -> None:
        async with nowait.open(disk / "file", "r", newline=newline) as file:
            drop_cache(disk / "file")
            assert [line async for line in file] == lines
            assert file.newlines == newlines
            await file.seek(0)
            assert await file.readlines() == lines
            await file.seek(0)
            assert [line async for line in file] == lines

    run(main())


def test_positions_are_offsets_where_bytes_and_text_agree(disk: pathlib.Path, run: Run) -> None:
    (disk / "file").write_text("zwölf\n" * 10_000, encoding="utf-8")

    async def main() -> None:
        async with nowait.open(disk / "file", "r+") as file:
            for count in range(1, 10_000, 1234):
                await file.seek(0)
                for _ in range(count):
                    await file.readline()
                assert await file.tell() == 7 * count
            assert await file.seek(7) == 7
            assert await file.read(2) == "zw"
            assert await file.write("x") == 1
            assert await file.tell() == 10
            assert await file.truncate() == 10
            assert await file.read() == ""
        assert (disk / "file").read_bytes() == b"zw\xc3\xb6lf\nzwx"
        async with nowait.open(disk / "file", "r+b") as raw:
            await raw.write(b"one\r\ntwo\r\n")
        async with nowait.open(disk / "file", "r+") as file:
            assert await file.readline() == "one\n"
            assert await file.tell() == 5
            assert await file.write("TWO") == 3
            await file.seek(5)
            assert await file.readline() == "TWO\n"

    run(main())


def test_text_is_gathered_until_it_is_flushed(folder: pathlib.Path, run: Run) -> None:
    path = folder / "file"

    async def main() -> None:
        async with nowait.open(path, "x", 1, newline="\r\n") as file:
            await file.write("one")
            assert path.read_bytes() == b""
            await file.write(" two\nthree")
            assert path.read_bytes() == b"one two\r\nthree", "a line is buffered, no more"
            await file.write("ü")
            await file.sync()
            assert path.read_bytes() == b"one two\r\nthree\xc3\xbc"
            await file.writelines(["4", "5"])
        assert path.read_bytes() == b"one two\r\nthree\xc3\xbc45"

    run(main())


def test_to_append_nothing_does_not_go_to_the_end(disk: pathlib.Path, run: Run) -> None:
    (disk / "file").write_bytes(b"one\ntwo\n")

    async def main() -> None:
        async with nowait.open(disk / "file", "a+") as file:
            await file.seek(0)
            assert await file.write("") == 0
            assert await file.readline() == "one\n"

    run(main())


def test_what_cannot_be_is_refused_as_by_open(disk: pathlib.Path, run: Run) -> None:
    (disk / "file").write_bytes(b"\xff\xfe\xfd")
    path = str(disk / "file")

    async def main() -> None:
        for arguments in (
            {"mode": "r", "buffering": 0},
            {"mode": "r", "newline": "x"},
            {"mode": "r", "encoding": "rot13"},
            {"mode": "r", "encoding": "none of them"},
            {"mode": "rb", "encoding": "utf-8"},
            {"mode": "rb", "newline": "\n"},
            {"mode": "rb", "errors": "strict"},
        ):
            with pytest.raises((ValueError, LookupError)) as expected:
                open(path, **arguments)  # type: ignore[call-overload]
            with pytest.raises(type(expected.value)):
                nowait.open(path, **arguments)  # type: ignore[call-overload]
        async with nowait.open(path, "r+") as file:
            with pytest.raises(UnicodeDecodeError):
                await file.read()
            with pytest.raises(TypeError):
                await file.write(b"x")  # type: ignore[arg-type]
            with pytest.raises(io.UnsupportedOperation):
                await file.seek(1, os.SEEK_CUR)
            with pytest.raises(io.UnsupportedOperation):
                await file.seek(-1, os.SEEK_END)
            with pytest.raises(ValueError, match="negative"):
                await file.seek(-1)
            with pytest.raises(UnicodeEncodeError):
                await file.write("\ud800")
        for call in (file.read, file.readline, file.tell, file.flush, lambda: file.seek(0)):
            with pytest.raises(ValueError, match="closed"):
                await call()
        (disk / "file").write_text("\ufeff" + "a" * 40_000, "utf-16-be")
        async with nowait.open(path, "r+", -1, "utf-16", newline="\n") as file:
            await file.read(3)
            with pytest.raises(io.UnsupportedOperation, match="seek"):
                await file.write("x")
            assert await file.tell() >> 64
        async with nowait.open(path, "r", encoding="locale", errors="ignore") as file:
            assert repr(file).startswith("<nowait.TextFile ")
            assert (file.name, file.mode, file.errors) == (path, "r", "ignore")
            assert isinstance(file.buffer, nowait.File)

    run(main())


def test_what_is_not_written_does_not_change_how_the_next_is_encoded(
    disk: pathlib.Path, run: Run
) -> None:
    """This encoding has states: a write begins in the state in which the previous write has
    ended."""

    async def main() -> None:
        async with nowait.open(disk / "file", "w", 16, encoding="iso2022_jp") as file:
            await file.write("a")
            with pytest.raises(UnicodeEncodeError):
                await file.write("あ\ud800")
            lock, cancelled = file.buffer._lock, anyio.CancelScope()
            await lock.__aenter__()
            async with anyio.create_task_group() as group:
                for scope, text in ((cancelled, "い" * 100), (anyio.CancelScope(), "う" * 100)):
                    group.start_soon(write, scope, file, text)
                    await anyio.lowlevel.checkpoint()
                cancelled.cancel()
                await anyio.lowlevel.checkpoint()
                await lock.__aexit__()
            assert cancelled.cancelled_caught
        assert (disk / "file").read_text("iso2022_jp") == "a" + "う" * 100

    async def write(scope: anyio.CancelScope, file: nowait.TextFile, text: str) -> None:
        with scope:
            await file.write(text)

    run(main())
