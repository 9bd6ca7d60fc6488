"""The requests in flight, and the ones that wait for their turn."""

from __future__ import annotations

import gc
import os
import pathlib
import threading
from collections.abc import Iterator

import anyio
import nowait
import pytest
from conftest import ASYNCIO, Run, gather, python

BLOCK = 4096
BLOCKS = 512


@pytest.fixture
def path(disk: pathlib.Path) -> pathlib.Path:
    (disk / "file").write_bytes(b"".join(b"%04d" % at * (BLOCK // 4) for at in range(BLOCKS)))
    return disk / "file"


@pytest.fixture(autouse=True)
def limits() -> Iterator[None]:
    before = nowait.limits()
    yield
    nowait.limits(**before._asdict())


def is_block(data: bytes, at: int) -> bool:
    return data == b"%04d" % at * (BLOCK // 4)


def test_limits_are_set_one_by_one() -> None:
    before = nowait.limits()
    assert before.bytes is before.loop_bytes is before.loop_requests is None
    assert nowait.limits(loop_requests=7) == before._replace(loop_requests=7)
    after = nowait.limits(bytes=1 << 20, loop_requests=None)
    assert after == nowait.limits() == before._replace(bytes=1 << 20)
    with pytest.raises(ValueError, match="at least 1"):
        nowait.limits(requests=0)


@pytest.mark.parametrize("bound", ["loop_requests", "loop_bytes", "requests", "bytes"])
def test_no_more_is_in_flight_than_may_be(path: pathlib.Path, run: Run, bound: str) -> None:
    unit = BLOCK if "bytes" in bound else 1
    most = 0

    async def read(file: nowait.File, at: int) -> None:
        nonlocal most
        operation = file.read_at(BLOCK, at * BLOCK)
        now = nowait.in_flight()
        most = max(most, now.requests)
        assert now.requests <= 5 and now.bytes == now.requests * BLOCK
        assert is_block(await operation, at)
        assert nowait.in_flight().requests <= 5

    async def main() -> None:
        nowait.limits(**{bound: 5 * unit})
        async with nowait.open(path, cache="direct") as file:
            await gather(*(read(file, at) for at in range(BLOCKS)))
            many = await file.read_many([(at * BLOCK, BLOCK) for at in range(BLOCKS)])
            assert all(map(is_block, many, range(BLOCKS)))
            assert most == 5
        assert nowait.in_flight() == (0, 0, 0)

    run(main())


def test_a_request_larger_than_the_limit_passes_alone(path: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        nowait.limits(loop_bytes=1000)
        async with nowait.open(path, cache="direct") as file:
            reads = [file.read_at(BLOCK, at * BLOCK) for at in range(4)]
            assert nowait.in_flight() == (1, BLOCK, 3)
            assert all(map(is_block, await gather(*reads), range(4)))

    run(main())


def test_what_waits_is_begun_in_order(disk: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        nowait.limits(loop_requests=1)
        async with nowait.open(disk / "file", "wb+") as file:
            # Each write is at another place, so that no overlap orders them.
            writes = [file.write_at(b"x" * 100_000, at * 100_000) for at in range(20)]
            assert nowait.in_flight().waiting >= 18
            for at, write in enumerate(writes):
                await write
                assert all(earlier.done() for earlier in writes[:at])
                assert os.path.getsize(disk / "file") >= (at + 1) * 100_000

    run(main())


def test_requests_on_the_same_bytes_keep_their_order_in_line(
    disk: pathlib.Path, run: Run
) -> None:
    async def main() -> None:
        nowait.limits(loop_requests=2)
        async with nowait.open(disk / "file", "wb+") as file:
            reads = []
            for number in range(50):
                file.write_at(b"%05d" % number * 10_000, 0)
                reads.append(file.read_at(50_000, 0))
            assert nowait.in_flight().waiting > 0
            for number, data in enumerate(await gather(*reads)):
                assert data == b"%05d" % number * 10_000
            await file.sync()

    run(main())


def test_what_waits_can_be_cancelled(path: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        nowait.limits(loop_requests=1)
        async with nowait.open(path, cache="direct") as file:
            first = file.read_at(1 << 20, 0)
            buffers = [bytearray(BLOCK) for _ in range(10_000)]
            waiting = [file.readinto_at(buffer, 0) for buffer in buffers]
            last = file.read_at(BLOCK, 7 * BLOCK)
            assert nowait.in_flight() == (1, 1 << 20, 10_001)
            for operation in waiting[5000:]:
                operation.cancel()
            assert nowait.in_flight() == (1, 1 << 20, 5001)
            for buffer in buffers[5000:]:
                buffer.clear()  # nothing has a hold on it
            with anyio.CancelScope() as scope:
                scope.cancel()
                await gather(*waiting[:5000])
            assert all(operation.done() for operation in waiting)
            assert len(await first) == 1 << 20
            assert is_block(await last, 7)

    run(main())


def test_a_raised_limit_lets_what_waits_begin(path: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        nowait.limits(loop_requests=1)
        async with nowait.open(path, cache="direct") as file:
            reads = [file.read_at(BLOCK, at * BLOCK) for at in range(200)]
            assert nowait.in_flight().requests == 1
            nowait.limits(loop_requests=None)
            assert all(map(is_block, await gather(*reads), range(200)))

    run(main())


def test_a_loop_that_ends_leaves_its_line_to_the_next(path: pathlib.Path, run: Run) -> None:
    async def leave() -> None:
        file = await nowait.open(path, cache="direct")
        for at in range(100):
            file.read_at(BLOCK, at * BLOCK)
        assert nowait.in_flight().waiting == 98
        await file.close()

    async def read() -> None:
        async with nowait.open(path, cache="direct") as file:
            assert is_block(await file.read_at(BLOCK, 9 * BLOCK), 9)
        assert nowait.in_flight().waiting == 0

    nowait.limits(loop_requests=2)
    run(leave())
    run(read())


def test_loops_do_not_wait_for_one_that_has_ended(path: pathlib.Path, run: Run) -> None:
    """The thread of the other loop lives, and runs no loop."""
    nowait.limits(requests=1)
    left, over = threading.Event(), threading.Event()

    async def leave() -> None:
        file = await nowait.open(path, cache="direct")
        for at in range(10):
            file.read_at(BLOCK, at * BLOCK)
        left.set()

    async def read() -> None:
        async with nowait.open(path, cache="direct") as file:
            for at in range(20):
                assert is_block(await file.read_at(BLOCK, at * BLOCK), at)

    def other() -> None:
        run(leave())
        over.wait(60)

    with pytest.warns(ResourceWarning):
        thread = threading.Thread(target=other)
        thread.start()
        assert left.wait(60)
        try:
            run(read())
        finally:
            over.set()
            thread.join()
            gc.collect()


def test_threads_share_the_limit_of_the_process(path: pathlib.Path) -> None:
    nowait.limits(requests=8)
    most: list[int] = []

    async def read() -> None:
        async with nowait.open(path, cache="direct") as file:
            reads = [file.read_at(BLOCK, at * BLOCK) for at in range(BLOCKS)]
            for at, read in enumerate(reads):
                assert is_block(await read, at)
                most.append(nowait.in_flight().requests)

    threads = [threading.Thread(target=lambda: ASYNCIO["asyncio"](read())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 4 * BLOCKS and max(most) <= 8


CHILD = """
import asyncio, os, sys, warnings, nowait
warnings.simplefilter("ignore")

async def read():
    async with nowait.open(sys.argv[1], cache="direct") as file:
        reads = [file.read_at(4096, at * 4096) for at in range(100)]
        assert nowait.in_flight().requests == 3, nowait.in_flight()
        assert sum(map(len, await asyncio.gather(*reads))) == 409600

assert nowait.limits() == (1000, 3 << 20, 3, None), nowait.limits()
nowait.limits(bytes=1 << 20)

async def main():
    file = await nowait.open(sys.argv[1], cache="direct")
    reads = [file.read_at(4096, at * 4096) for at in range(100)]
    child = os.fork()
    if child == 0:
        # The parent's requests, in flight or waiting, do not exist in the child.
        assert nowait.in_flight() == (0, 0, 0)
        assert nowait.limits().bytes == 1 << 20
        asyncio.run(read())
        os._exit(0)
    await asyncio.gather(*reads)
    await file.close()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

sys.exit(asyncio.run(main()))
"""


def test_the_environment_sets_limits_and_a_child_keeps_them(path: pathlib.Path) -> None:
    ended = python(
        CHILD,
        str(path),
        NOWAIT_MAX_REQUESTS="1000",
        NOWAIT_MAX_PINNED="3M",
        NOWAIT_MAX_CONTEXT_REQUESTS="3",
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_reads_in_line_take_no_memory(path: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        nowait.limits(loop_requests=1)
        async with nowait.open(path) as file, nowait.open(path, cache="direct") as slow:
            # A read of cached data is over at once, unless requests wait in line.
            first = [slow.read_at(1 << 20, 0) for _ in range(2)]
            before = resident()
            reads = [file.read_at(16 * BLOCK, 0) for _ in range(100_000)]
            assert nowait.in_flight().waiting == 100_001
            # One page for each read would take 400 MB.
            assert resident() - before < 200 << 20
            for read in reads[20_000:]:
                read.cancel()
            await gather(*first)
            for at, data in enumerate(await gather(*reads[:20_000:100])):
                assert is_block(data[:BLOCK], 0), at
            for read in reads[:20_000]:
                read.cancel()

    run(main())


def test_a_long_line_of_cached_reads_gives_other_tasks_their_turn(
    path: pathlib.Path, run: Run
) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async def main() -> None:
        nowait.limits(loop_requests=64)
        async with nowait.open(path) as file, nowait.open(path, cache="direct") as slow:
            assert len(await file.read_at(BLOCK * BLOCKS, 0)) == BLOCK * BLOCKS
            async with anyio.create_task_group() as group:
                first = [slow.read_at(BLOCK, 0) for _ in range(65)]
                reads = [file.read_at(BLOCK, at % BLOCKS * BLOCK) for at in range(20_000)]
                group.start_soon(count)
                await gather(*first)
                for at, data in enumerate(await gather(*reads)):
                    assert is_block(data, at % BLOCKS)
                group.cancel_scope.cancel()
            assert turns >= 20_000 // 64

    run(main())


SHORT = """
import asyncio, errno, resource, sys, nowait

async def main():
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    async with nowait.open(sys.argv[1], "wb") as file:
        for call in (lambda: file.write_at(bytes(150_000), 0), lambda: stream(file)):
            try:
                await call()
            except OSError as error:
                assert error.errno == errno.EFBIG, error
            else:
                return 3
    return 0

async def stream(file):
    await file.write(bytes(150_000))
    await file.flush()

sys.exit(asyncio.run(main()))
"""


def test_a_write_of_which_a_part_is_done_fails(folder: pathlib.Path) -> None:
    ended = python(SHORT, str(folder / "file"))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert os.path.getsize(folder / "file") == 100_000
