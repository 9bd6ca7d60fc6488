"""Files as streams of bytes."""

from __future__ import annotations

import asyncio
import errno
import gc
import io
import itertools
import os
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import anyio
import nowait
import pytest
from conftest import FULL, RUNS, Run, drop_cache, gather, python
from hypothesis import HealthCheck, given, settings, strategies
from nowait._nowait import turn

MODES = ["rb", "rb+", "wb", "wb+", "ab", "ab+", "xb", "xb+"]


@pytest.fixture(params=["host", "user"])
def cache(request: pytest.FixtureRequest) -> nowait.CacheMode:
    return request.param  # type: ignore[no-any-return]


SIZES = strategies.one_of(
    strategies.integers(-1, 60), strategies.sampled_from([4096, 16384, 16385, 70_000])
)
WHENCES = strategies.sampled_from([0, 0, 0, 1, 2])
JUST = strategies.just
STEPS = strategies.one_of(
    strategies.tuples(strategies.sampled_from(["read", "readline", "readlines"]), SIZES),
    strategies.tuples(JUST("readinto"), strategies.integers(0, 20_000)),
    strategies.tuples(JUST("lines"), strategies.integers(0, 5)),
    strategies.tuples(JUST("write"), strategies.integers(0, 60)),
    strategies.tuples(JUST("write"), strategies.sampled_from([8192, 66_000, 150_000])),
    strategies.tuples(JUST("seek"), strategies.tuples(strategies.integers(-40, 90_000), WHENCES)),
    strategies.tuples(JUST("truncate"), strategies.one_of(strategies.none(), SIZES)),
    strategies.tuples(strategies.sampled_from(["tell", "flush"]), JUST(None)),
)


def content(size: int, seed: int) -> bytes:
    """Return bytes with lines of many lengths in them."""
    pattern = b"%d\n\r\nline %d\r and\x0b so on %d\n" % (seed, seed, seed) + b"x" * (seed * 7 % 90)
    return (pattern * (size // len(pattern) + 1))[:size]


async def perform(file: nowait.File, what: str, value: Any, seed: int) -> Any:
    if what == "lines":
        lines = []
        if value:
            async for line in file:
                lines.append(line)
                if len(lines) == value:
                    break
        return lines
    if what == "readinto":
        buffer = bytearray(value)
        return await file.readinto(buffer), buffer
    if what == "write":
        count = await file.write(content(value, seed))
        return count, await file.seek(0, os.SEEK_END) if file.mode == "ab+" else None
    if what == "seek":
        return await file.seek(*value)
    if "a" in file.mode and what == "tell":
        await file.flush()  # where that is, is known only then
    if "a" in file.mode and what == "truncate":
        await file.seek(0, os.SEEK_END)  # the end of what others have made longer
        size = await file.truncate(value)
        return size, await file.seek(0, os.SEEK_END)
    method: Callable[..., Any] = getattr(file, what)
    return await (method() if value is None else method(value))


def model(file: Any, what: str, value: Any, seed: int) -> Any:
    if what == "lines":
        return list(itertools.islice(iter(file.readline, b""), value))
    if what == "readinto":
        buffer = bytearray(value)
        return file.readinto(buffer), buffer
    if what == "write":
        count = file.write(content(value, seed))
        # `io` learns the offset after an append only by this seek.
        return count, file.seek(0, os.SEEK_END) if "a" in file.mode and file.readable() else None
    if what == "seek":
        return file.seek(*value)
    if "a" in file.mode and what == "tell":
        file.flush()
    if "a" in file.mode and what == "truncate":
        file.seek(0, os.SEEK_END)
        return file.truncate(value), file.seek(0, os.SEEK_END)
    if what == "readline" and not file.readable():
        raise io.UnsupportedOperation  # and no line of no bytes
    method = getattr(file, what)
    return method() if value is None else method(value)


@settings(
    max_examples=3000 if FULL else 150,
    deadline=None,
    derandomize=not FULL,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    kind=strategies.sampled_from(list(RUNS)),
    mode=strategies.sampled_from(MODES),
    cache=strategies.sampled_from(["host", "user"]),
    buffering=strategies.sampled_from([-1, -1, 100]),
    size=strategies.sampled_from([0, 100, 20_000, 300_000]),
    steps=strategies.lists(STEPS, max_size=15),
)
def test_a_stream_is_as_one_of_io(
    kind: str,
    mode: str,
    cache: nowait.CacheMode,
    buffering: int,
    size: int,
    steps: list[tuple[str, Any]],
) -> None:
    async def main(folder: str) -> None:
        ours, theirs = os.path.join(folder, "ours"), os.path.join(folder, "theirs")
        if "x" not in mode:
            pathlib.Path(ours).write_bytes(content(size, 3))
            pathlib.Path(theirs).write_bytes(content(size, 3))
        with open(theirs, mode) as expected:
            async with nowait.open(ours, mode, buffering, cache=cache) as file:
                for seed, (what, value) in enumerate(steps):
                    try:
                        result = model(expected, what, value, seed)
                    except (OSError, ValueError) as error:
                        with pytest.raises(type(error)):
                            await perform(file, what, value, seed)
                    else:
                        assert await perform(file, what, value, seed) == result, (what, value)
                await file.flush()
                expected.flush()
                assert await file.tell() == expected.tell()
        assert pathlib.Path(ours).read_bytes() == pathlib.Path(theirs).read_bytes()

    with tempfile.TemporaryDirectory(prefix="nowait-python-", dir="/dev/shm") as folder:
        RUNS[kind](main(folder))


def test_a_line_that_is_there_is_awaited_without_the_loop(disk: pathlib.Path, run: Run) -> None:
    (disk / "file").write_bytes(b"one\ntwo\nthree\nfour")

    async def main() -> None:
        async with nowait.open(disk / "file") as file:
            lines = aiter(file)
            assert await anext(lines) == b"one\n"
            two, three = anext(lines), anext(lines)
            with pytest.raises(StopIteration) as stop:
                next(three.__await__())
            assert stop.value.value == b"three\n"
            assert await two == b"two\n", "each has its own line"
            with pytest.raises(RuntimeError, match="awaited already"):
                await two
            assert await anext(file) == b"four"
            with pytest.raises(StopAsyncIteration):
                await anext(lines)
            assert [line async for line in file] == []

    run(main())


def test_other_tasks_have_their_turn_while_lines_are_read(disk: pathlib.Path, run: Run) -> None:
    (disk / "file").write_bytes(b"a line of no interest\n" * 200_000)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(count)
            async with nowait.open(disk / "file") as file:
                assert len([line async for line in file]) == 200_000
            group.cancel_scope.cancel()
        assert turns > 10

    run(main())


def test_tasks_share_a_stream_line_by_line(disk: pathlib.Path, run: Run) -> None:
    written = [b"%d " % number * (number % 300) + b"\n" for number in range(3000)]
    (disk / "file").write_bytes(b"".join(written))

    async def main() -> None:
        read: list[bytes] = []

        async def take(file: nowait.File) -> None:
            while line := await file.readline():
                read.append(line)

        async with nowait.open(disk / "file") as file:
            drop_cache(disk / "file")
            await gather(*(take(file) for _ in range(5)))
        assert sorted(read) == sorted(written)
        async with nowait.open(disk / "copy", "wb") as file:
            await gather(*(file.write(line) for line in written))
        assert sorted((disk / "copy").read_bytes().splitlines(True)) == sorted(written)

    run(main())


def test_appends_go_behind_those_of_others(disk: pathlib.Path, run: Run) -> None:
    path = disk / "file"
    path.write_bytes(b"begin\n")

    async def main() -> None:
        async with nowait.open(path, "ab+") as one, nowait.open(path, "ab") as other:
            assert await one.tell() == await other.tell() == 6
            for _ in range(100):
                await one.write(b"one\n")
                await other.write(b"other\n")
                await one.flush()
                assert await one.tell() == os.path.getsize(path)
                await other.flush()
            await one.seek(0)
            assert await one.readline() == b"begin\n"
            await one.write(b"end\n")
            assert await one.tell() == 6 + 1000 + 4
        lines = path.read_bytes().splitlines(True)
        assert lines == [b"begin\n", *[b"one\n", b"other\n"] * 100, b"end\n"]

    run(main())


def test_a_cancelled_write_is_neither_lost_nor_done_twice(disk: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        async with nowait.open(disk / "file", "ab") as file:
            for number in range(100):
                await file.write(b"%06d" % number * 10_000)
                async with anyio.create_task_group() as group:
                    group.start_soon(file.flush)
                    await anyio.lowlevel.checkpoint()
                    group.cancel_scope.cancel()
        expected = b"".join(b"%06d" % number * 10_000 for number in range(100))
        assert (disk / "file").read_bytes() == expected

    run(main())


def test_a_cancelled_close_loses_nothing(disk: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        for steps in range(6):
            path = disk / f"file{steps}"
            file = await nowait.open(path, "ab")
            await file.write(b"1" * 100_000)  # on its way
            await file.write(b"2" * 1000)  # gathered
            async with anyio.create_task_group() as group:
                group.start_soon(closed, file)
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
            while not file.closed:
                await anyio.lowlevel.checkpoint()
            async with nowait.open(path) as written:
                # This read comes after the writes that were in flight.
                assert await written.read_at(200_000, 0) == b"1" * 100_000 + b"2" * 1000

    async def closed(file: nowait.File) -> None:
        await file.close()

    run(main())


def test_a_close_that_is_cancelled_before_its_first_step_closes(
    disk: pathlib.Path, run_asyncio: Run
) -> None:
    async def main() -> None:
        file = await nowait.open(disk / "file", "wb")
        await file.write(b"gathered")
        closing = asyncio.ensure_future(file.close())
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        for _ in range(3):
            await asyncio.sleep(0)
        assert file.closed
        assert await read_behind(disk / "file") == b"gathered"

    run_asyncio(main())


async def read_behind(path: pathlib.Path) -> bytes:
    """Read everything, behind writes in flight."""
    async with nowait.open(path) as file:
        return await file.read_at(64 << 20, 0)


def test_a_write_that_waits_for_a_stream_that_is_closed_is_refused(
    disk: pathlib.Path, run_asyncio: Run
) -> None:
    async def main() -> None:
        file = await nowait.open(disk / "file", "wb")
        await file.write(b"gathered")
        file._late = in_flight = turn()  # in place of a write, which could end early
        writing = asyncio.ensure_future(file.write(b"3" * 100_000))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(file.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.sleep(0)
        assert not writing.done() and in_flight.grant()
        with pytest.raises(ValueError, match="closed"):
            await writing
        assert await read_behind(disk / "file") == b"gathered"

    run_asyncio(main())


def test_a_failure_is_told_after_a_wait_that_is_cancelled_with_it(run_asyncio: Run) -> None:
    async def fail(file: nowait.File) -> asyncio.Task[None]:
        """Return a flush that is cancelled in the step in which the write has failed."""

        async def flush() -> None:
            # Flush in the same step as the write: the loop has no turn in which the write could
            # fail earlier.
            await file.write(b"x" * 100_000)
            assert file._late is not None
            file._late.add_done_callback(lambda _: flushing.cancel())
            await file.flush()

        flushing = asyncio.ensure_future(flush())
        await asyncio.wait([flushing])
        return flushing

    async def main() -> None:
        file = await nowait.open("/dev/full", "rb+")
        for _ in range(20):
            flushing = await fail(file)
            assert flushing.cancelled()
            with pytest.raises(OSError, match="[Nn]o space"):
                await file.flush()
        await file.close()

    run_asyncio(main())


def test_what_one_loop_has_begun_to_write_the_next_one_waits_for(disk: pathlib.Path) -> None:
    async def begin(path: pathlib.Path) -> nowait.File:
        file = await nowait.open(path, "wb")
        await file.write(b"1" * (32 << 20))
        assert file._late is not None and not file._late.done()
        return file

    async def go_on(file: nowait.File) -> None:
        await file.write(b"2" * 100_000)
        await file.flush()
        await file.close()

    for kind, again in itertools.product(RUNS.values(), repeat=2):
        file = kind(begin(disk / "file"))
        again(go_on(file))
        assert (disk / "file").read_bytes() == b"1" * (32 << 20) + b"2" * 100_000


def test_a_failed_write_is_told(run: Run) -> None:
    async def main() -> None:
        file = await nowait.open("/dev/full", "rb+")
        assert await file.write(b"x") == 1
        with pytest.raises(OSError, match="[Nn]o space") as full:
            await file.flush()
        assert full.value.errno == errno.ENOSPC
        await file.write(b"x")
        with pytest.raises(OSError, match="[Nn]o space"):
            await file.sync()
        await file.write(b"x")
        with pytest.raises(OSError, match="[Nn]o space"):
            await file.close()
        assert file.closed
        file = await nowait.open("/dev/full", "rb+", buffering=0)
        with pytest.raises(OSError, match="[Nn]o space"):
            await file.write(b"x")
        await file.close()

    run(main())


def test_syncs_and_closing_cover_what_is_gathered(
    folder: pathlib.Path, run: Run, cache: nowait.CacheMode
) -> None:
    path = folder / "file"

    async def main() -> None:
        file = await nowait.open(path, "wb+", cache=cache)
        await file.write(b"one")
        assert path.read_bytes() == b""
        await file.sync()
        assert path.read_bytes() == b"one"
        await file.write(b"two")
        await gather(file.datasync(), file.sync_range(0))
        assert path.read_bytes() == b"onetwo"
        await file.write(b"three")
        assert await file.truncate(8) == 8
        assert await file.read_at(100, 0) == b"onetwoth"
        await file.write(b"four")
        await file.close()
        assert path.read_bytes() == b"onetwoth\0\0\0four"
        for durable, buffering in ((True, -1), (False, 0)):
            async with nowait.open(path, "wb", buffering, durable=durable) as file:
                await file.write(b"at once")
                assert path.read_bytes() == b"at once"

    run(main())


def test_what_was_not_flushed_is_written_at_the_end(disk: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        file = await nowait.open(disk / "file", "wb")
        await file.write(b"saved")
        await anyio.lowlevel.checkpoint()  # the loop holds what woke this step
        with pytest.warns(ResourceWarning, match="unclosed file"):
            del file
            gc.collect()

    run(main())
    assert (disk / "file").read_bytes() == b"saved"
    script = """
import asyncio, nowait, sys
async def main():
    global kept
    kept = [await nowait.open(sys.argv[1], "a"), await nowait.open(sys.argv[2], "wb", cache="user")]
    await kept[0].write("by the exit")
    await kept[1].write(b"by the exit")
asyncio.run(main())
"""
    ended = python(script, str(disk / "file"), str(disk / "other"))
    assert ended.returncode == 0, ended.stderr
    assert (disk / "file").read_bytes() == b"savedby the exit"
    assert (disk / "other").read_bytes() == b"by the exit"


def test_direct_files_are_read_from_any_position(disk: pathlib.Path, run: Run) -> None:
    (disk / "file").write_bytes(content(100_001, 3))

    async def main() -> None:
        async with nowait.open(disk / "file", "rb+", cache="direct") as file:
            for offset in (0, 1, 5000, 99_999, 100_001, 200_000):
                assert await file.seek(offset) == offset
                assert await file.read(7) == content(100_001, 3)[offset : offset + 7]
                assert await file.read() == content(100_001, 3)[offset + 7 :]
            await file.seek(0)
            lines = [line async for line in file]
            assert lines == io.BytesIO(content(100_001, 3)).readlines()
            with pytest.raises(io.UnsupportedOperation, match="write_at"):
                await file.write(b"x")
        with pytest.raises(ValueError, match="cannot be opened for appending"):
            nowait.open(disk / "file", "ab", cache="direct")

    run(main())


def test_what_was_read_ahead_is_had_at_once(disk: pathlib.Path, run: Run) -> None:
    (disk / "file").write_bytes(bytes(range(200)))

    async def main() -> None:
        async with nowait.open(disk / "file") as file:
            assert (await file.peek(1)).startswith(b"\0")
            assert await file.read1(3) == b"\0\1\2"
            assert await file.read1() == bytes(range(3, 200))
            assert await file.read1() == await file.peek() == b""
            await file.seek(198)
            assert await file.readall() == bytes(range(198, 200))
            assert (await file.read_many([(0, 1), (5, 2)])) == [b"\0", b"\5\6"]

    run(main())


def test_a_closed_stream_refuses_everything(disk: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        async with nowait.open(disk / "file", "wb+") as file:
            await file.write(b"one\ntwo\n")
            await file.seek(0)
            assert await file.readline() == b"one\n"
            assert file.readable() and file.writable() and file.seekable() and not file.isatty()
        for call in (
            file.read,
            file.readline,
            file.readlines,
            file.peek,
            file.tell,
            file.flush,
            lambda: file.read(1),
            lambda: file.write(b"x"),
            lambda: file.seek(0),
            lambda: file.__anext__(),
        ):
            with pytest.raises(ValueError, match="closed"):
                await call()
        for fact in (file.readable, file.writable, file.seekable, file.isatty, file.truncate):
            with pytest.raises(ValueError, match="closed"):
                fact()
        await file.close()

    run(main())


def test_an_error_behind_the_bytes_of_a_read_is_raised(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """A read ends short before bytes that cannot be read; only the next read fails."""
    (path := tmp_path / "file").write_bytes(b"line\n" * 10_000)

    async def main() -> None:
        for read in (nowait.File.read, nowait.File.readall, nowait.File.readlines):
            async with nowait.open(path, "rb") as file:
                with monkeypatch.context() as patch:
                    patch.setattr(nowait.File, "read_at", fail_behind(4096, nowait.File.read_at))
                    with pytest.raises(OSError, match="Input/output error"):
                        await read(file)
                assert await file.read(4096) == (b"line\n" * 1000)[:4096]
                assert len(await file.read()) == 50_000 - 4096

    run(main())


def fail_behind(end: int, read_at: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `read_at` as of a file whose bytes from ``end`` on cannot be read."""

    async def read(file: nowait.File, count: int, offset: int) -> bytes:
        if offset >= end:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        data: bytes = await read_at(file, min(count, end - offset), offset)
        return data

    return read
