"""Positional requests, on real files."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import os
import pathlib
import shutil
import subprocess
import sys

import nowait
import pytest
from conftest import LIMIT, RUNS, Run, drop_cache, gather

BLOCK = 4096


@pytest.fixture(params=["host", "user"])
def cache(request: pytest.FixtureRequest) -> nowait.CacheMode:
    return request.param  # type: ignore[no-any-return]


def test_what_is_written_is_read(folder: pathlib.Path, run: Run, cache: nowait.CacheMode) -> None:
    async def main() -> None:
        async with nowait.open(folder / "file", "wb+", cache=cache) as file:
            assert await file.write_at(b"hello world", 0) == 11
            assert await file.write_at(bytearray(b"there"), 6) == 5
            assert await file.write_at(memoryview(b"abc")[1:], 20) == 2
            assert await file.read_at(11, 0) == b"hello there"
            assert await file.read_at(100, 11) == bytes(9) + b"bc"
            assert await file.read_at(100, 22) == b""
            assert await file.read_at(0, 0) == b""
            assert await file.size() == 22

    run(main())
    assert (folder / "file").read_bytes() == b"hello there" + bytes(9) + b"bc"


def test_a_buffer_is_filled(folder: pathlib.Path, run: Run, cache: nowait.CacheMode) -> None:
    (folder / "file").write_bytes(b"0123456789")

    async def main() -> None:
        async with nowait.open(folder / "file", cache=cache) as file:
            buffer = bytearray(b"xxxxxx")
            assert await file.readinto_at(memoryview(buffer)[1:5], 3) == 4
            assert buffer == b"x3456x"
            assert await file.readinto_at(buffer, 8) == 2
            with pytest.raises(BufferError):
                await file.readinto_at(b"constant", 0)
            with pytest.raises(TypeError):
                await file.readinto_at(7, 0)  # type: ignore[arg-type]

    run(main())


def test_cached_reads_do_not_suspend(
    disk: pathlib.Path, run: Run, cache: nowait.CacheMode
) -> None:
    (disk / "file").write_bytes(bytes(range(256)) * 1024)

    async def main() -> None:
        async with nowait.open(disk / "file", cache=cache) as file:
            await file.read_at(256 << 10, 0)
            for offset in range(0, 256 << 10, BLOCK):
                # A busy kernel may refuse a read without waiting, but not for ever.
                for _ in range(100):
                    operation = file.read_at(BLOCK, offset)
                    if operation.done():
                        break
                    await operation
                with pytest.raises(StopIteration) as stop:
                    next(operation.__await__())
                assert stop.value.value == bytes(range(256)) * 16
            operation = file.read_many([(0, 2), (BLOCK, 3)])
            assert operation.done() and operation.result() == [b"\0\1", b"\0\1\2"]

    run(main())


def test_what_is_not_cached_comes_all_the_same(disk: pathlib.Path, run: Run) -> None:
    (disk / "file").write_bytes(os.urandom(4 << 20))
    expected = (disk / "file").read_bytes()
    offsets = range(0, 4 << 20, 37 * BLOCK)

    async def main() -> None:
        async with nowait.open(disk / "file") as file:
            await file.advise("random")
            for _ in range(3):
                drop_cache(disk / "file")
                read = await gather(*(file.read_at(BLOCK, at) for at in offsets))
                assert read == [expected[at : at + BLOCK] for at in offsets]
            drop_cache(disk / "file")
            read = await file.read_many([(at, BLOCK) for at in offsets])
            assert read == [expected[at : at + BLOCK] for at in offsets]
            drop_cache(disk / "file")
            for at in offsets:
                assert await file.read_at(BLOCK, at) == expected[at : at + BLOCK]

    run(main())


def test_reads_in_line_behind_reads_that_are_over_at_once_begin(disk: pathlib.Path) -> None:
    # The test needs a thread of its own, whose queue has never been signalled. As many reads as a
    # queue has places end within the call, so no completion makes the loop start the reads that
    # wait behind these.
    (disk / "file").write_bytes(bytes(20_000))

    async def main() -> None:
        async with nowait.open(disk / "file") as file:
            reads = file.read_many([(at, 1) for at in range(10_000)])
            assert await asyncio.wait_for(reads, LIMIT) == [b"\0"] * 10_000

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, main()).result()


def test_more_reads_than_a_queue_has_places_all_end(disk: pathlib.Path, run: Run) -> None:
    (disk / "file").write_bytes(bytes(20_000))

    async def main() -> None:
        async with nowait.open(disk / "file") as file:
            assert await file.read_many([(at, 1) for at in range(10_000)]) == [b"\0"] * 10_000
            drop_cache(disk / "file")
            many = [file.read_at(2, at) for at in range(10_000)]
            assert await gather(*many) == [b"\0\0"] * 10_000
            assert await file.read_many([]) == []

    run(main())


def test_syncs_cover_the_writes_before_them(folder: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        for durable in (False, True):
            async with nowait.open(folder / "file", "wb+", durable=durable) as file:
                writes = [file.write_at(b"x" * 1000, at * 1000) for at in range(20)]
                await gather(*writes, file.sync(), file.datasync())
                await file.sync_range(500, 1000)
                await file.sync_range(0)
                assert await file.read_at(30_000, 0) == b"x" * 20_000

    run(main())


def test_a_file_is_cut_off_and_extended(
    folder: pathlib.Path, run: Run, cache: nowait.CacheMode
) -> None:
    async def main() -> None:
        async with nowait.open(folder / "file", "wb+", cache=cache) as file:
            await file.write_at(b"x" * 10, 0)
            assert await file.truncate(4) == 4
            assert await file.truncate(6) == 6
            assert await file.read_at(10, 0) == b"xxxx\0\0"

    run(main())


def test_advice_changes_no_result(folder: pathlib.Path, run: Run, cache: nowait.CacheMode) -> None:
    (folder / "file").write_bytes(b"x" * 100_000)

    async def main() -> None:
        async with nowait.open(folder / "file", cache=cache) as file:
            for advice in ("normal", "random", "sequential", "willneed", "dontneed"):
                await file.advise(advice, 1000, 5000)
                await file.advise(advice)
                assert await file.read_at(3, 50_000) == b"xxx"
            with pytest.raises(ValueError, match="unknown advice"):
                await file.advise("perhaps")  # type: ignore[arg-type]

    run(main())


CLOSED = """
import asyncio, errno, resource, signal, sys
import nowait

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

async def main(folder):
    try:
        async with nowait.open(folder + "/large", "wb", cache="user") as file:
            assert await file.write_at(bytes(2 << 20), 0) == 2 << 20
    except OSError as error:
        assert error.errno == errno.EFBIG, error
    else:
        raise AssertionError("the file has a part of what was written")
    assert file.closed
    await file.close()
    async with nowait.open(folder + "/small", "wb", cache="user") as file:
        await file.write_at(bytes(1 << 20), 0)

asyncio.run(main(sys.argv[1]))
"""


def test_close_raises_what_could_not_be_written(disk: pathlib.Path) -> None:
    subprocess.run([sys.executable, "-c", CLOSED, str(disk)], check=True, timeout=LIMIT)
    assert (disk / "small").stat().st_size == 1 << 20


@pytest.mark.parametrize("mode", ["host", "user", "direct"])
def test_more_than_memory_has_is_refused(
    disk: pathlib.Path, run: Run, mode: nowait.CacheMode
) -> None:
    (disk / "file").write_bytes(bytes(BLOCK))

    async def main() -> None:
        async with nowait.open(disk / "file", cache=mode) as file:
            for size in (1 << 46, sys.maxsize - BLOCK):
                with pytest.raises(MemoryError):
                    await file.read_at(size, 0)
            assert await file.read_at(BLOCK, 0) == bytes(BLOCK)

    run(main())


def test_direct_files_take_any_memory_and_aligned_ranges(disk: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        async with nowait.open(disk / "file", "wb+", cache="direct") as file:
            offset, memory = file.alignment or (0, 0)
            assert offset in (512, 4096) and memory
            buffer = nowait.AlignedBuffer(2 * BLOCK)
            buffer[:] = b"y" * BLOCK + b"z" * BLOCK
            assert await file.write_at(buffer, 0) == 2 * BLOCK
            assert await file.write_at(b"x" * BLOCK, 2 * BLOCK) == BLOCK
            assert await file.read_at(4 * BLOCK, 0) == (
                b"y" * BLOCK + b"z" * BLOCK + b"x" * BLOCK
            )
            assert await file.readinto_at(buffer, BLOCK) == 2 * BLOCK
            assert buffer[:] == b"z" * BLOCK + b"x" * BLOCK
            odd = memoryview(bytearray(BLOCK + 1))[1:]
            assert await file.readinto_at(odd, 0) == BLOCK
            assert odd == b"y" * BLOCK
            with pytest.raises(OSError, match="needs the offset to be a multiple") as refused:
                await file.read_at(BLOCK, 7)
            assert refused.value.errno == errno.EINVAL

    run(main())


def test_failures_are_those_of_the_system(folder: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        with pytest.raises(FileNotFoundError) as missing:
            await nowait.open(folder / "missing")
        assert missing.value.filename == str(folder / "missing")
        assert missing.value.strerror == "No such file or directory"
        with pytest.raises(IsADirectoryError):
            await nowait.open(folder, "wb")
        (folder / "file").write_bytes(b"x")
        with pytest.raises(FileExistsError):
            await nowait.open(folder / "file", "xb")
        async with nowait.open(folder / "file") as file:
            with pytest.raises(OSError, match="not open for writing") as refused:
                await file.write_at(b"y", 0)
            assert refused.value.errno == errno.EBADF
            with pytest.raises(OverflowError):
                await file.read_at(1, -1)
            with pytest.raises(OSError, match="larger than the largest file offset"):
                await file.read_at(1, 2**63)
            with pytest.raises(OSError, match="not open for writing"):
                await file.write_at(b"y", 0)
        with pytest.raises(ValueError, match="closed file"):
            file.read_at(1, 0)
        with pytest.raises(ValueError, match="closed file"):
            file.fileno()
        for mode in ("", "b", "rw", "rbb", "rb+w", "rbt", "r++", "U"):
            with pytest.raises(ValueError, match="mode must be"):
                nowait.open(folder / "file", mode)
        with pytest.raises(ValueError, match="cache is"):
            await nowait.open(folder / "file", cache="all")  # type: ignore[arg-type]

    run(main())


def test_the_modes_are_those_of_open(folder: pathlib.Path, run: Run) -> None:
    path = folder / "file"

    async def main() -> None:
        async with nowait.open(path, "xb", permissions=0o600) as file:
            await file.write_at(b"1234", 0)
            assert os.fstat(file.fileno()).st_mode & 0o777 == 0o600
        async with nowait.open(str(path), "r+b") as file:
            await file.write_at(b"z", 1)
        assert path.read_bytes() == b"1z34"
        async with nowait.open(os.fsencode(path), "wb"):
            assert path.read_bytes() == b""
        file = await nowait.open(path)
        assert not file.closed
        await file.close()
        await file.close()
        assert file.closed

    run(main())


def test_more_is_read_than_the_kernel_moves_at_once(disk: pathlib.Path) -> None:
    size = (2 << 30) + 12_345

    async def main() -> None:
        with open(disk / "file", "wb") as made:
            made.write(b"begin")
            made.seek(size - 3)
            made.write(b"end")
        async with nowait.open(disk / "file") as file:
            data = await file.read_at(size + 100, 0)
            assert len(data) == size and data.startswith(b"begin") and data.endswith(b"end")

    RUNS["asyncio"](main())  # once: it takes seconds


CACHED_READS = """
import asyncio, os, sys
import nowait

async def main():
    async with nowait.open(sys.argv[1]) as file:
        for _ in range(3):
            await file.read_at(4096, 0)
        os.getppid()
        for _ in range(100):
            await file.read_at(4096, 0)
        os.getppid()

asyncio.run(main())
"""


def test_a_cached_read_is_one_system_call(folder: pathlib.Path) -> None:
    """In memory as on a disk, a read asks the kernel for nothing that cannot change while a file is
    open."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("there is no strace")
    (folder / "file").write_bytes(bytes(1 << 16))
    trace = [strace, "-f", "-o", str(folder / "calls"), sys.executable, "-c", CACHED_READS]
    subprocess.run([*trace, str(folder / "file")], check=True, timeout=120)
    calls = [line.split(maxsplit=1) for line in (folder / "calls").read_text().splitlines()]
    # strace writes a call on two lines if another thread makes a call meanwhile: drop the second
    # line.
    calls = [(number, call) for number, call in calls if not call.startswith("<... ")]
    begin, end = [at for at, (_, call) in enumerate(calls) if call.startswith("getppid(")]
    thread = calls[begin][0]
    names = [call.split("(")[0] for number, call in calls[begin + 1 : end] if number == thread]
    assert len(names) == 100 and set(names) <= {"pread64", "preadv2"}, names
