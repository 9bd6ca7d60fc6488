"""Threads that use files at the same time, each with an event loop; loops that change threads."""

from __future__ import annotations

import asyncio
import functools
import os
import pathlib
import random
import threading
from collections.abc import Callable

import nowait
import pytest
from conftest import FULL, RUNS, drop_cache

BLOCK = 4096


def at_once(*works: Callable[[], object]) -> None:
    """Call each function on a thread of its own; the failure of one fails the test."""
    failures: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("cache", ["host", "user"])
@pytest.mark.parametrize("kind", list(RUNS))
def test_threads_with_a_loop_each_share_a_file(
    disk: pathlib.Path, kind: str, cache: nowait.CacheMode
) -> None:
    count, blocks, rounds = 6, 32, 300 if FULL else 40
    (disk / "file").write_bytes(bytes(count * blocks * BLOCK))

    async def opened() -> nowait.File:
        return await nowait.open(disk / "file", "rb+", cache=cache)

    async def closed(file: nowait.File) -> None:
        await file.close()

    file = RUNS["asyncio"](opened())

    async def work(mine: int) -> None:
        chance = random.Random(mine)
        for round in range(rounds):
            first = mine * blocks + chance.randrange(blocks - 4)
            data = bytes([1 + (mine + round) % 255]) * (4 * BLOCK)
            written = file.write_at(data, first * BLOCK)
            other = file.read_at(BLOCK, chance.randrange(count * blocks) * BLOCK)
            assert await written == len(data)
            if chance.random() < 0.2:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            parts = await file.read_many([((first + at) * BLOCK, BLOCK) for at in range(4)])
            assert b"".join(parts) == data
            assert len({*await other}) == 1, "half of a write"

    def begin(mine: int) -> None:
        RUNS[kind](work(mine))

    at_once(*(functools.partial(begin, mine) for mine in range(count)))
    RUNS["asyncio"](closed(file))


def test_a_loop_goes_on_in_another_thread(disk: pathlib.Path) -> None:
    """Both loops watch the queue of the first thread. The end of a request goes to the loop that
    waits for it."""
    path = disk / "file"
    path.write_bytes(bytes(range(256)) * 1024)

    async def read(rounds: int) -> None:
        async with nowait.open(path) as file:
            for _ in range(rounds):
                drop_cache(path)
                reads = [file.read_at(BLOCK, at * BLOCK) for at in range(0, 64, 5)]
                assert await asyncio.gather(*reads) == [bytes(range(256)) * 16] * 13
                await file.sync()

    moving, rounds = asyncio.new_event_loop(), 1000 if FULL else 100
    has_moved = threading.Event()

    def first() -> None:
        moving.run_until_complete(read(2))
        has_moved.set()
        asyncio.run(asyncio.wait_for(read(rounds), 60))

    def second() -> None:
        has_moved.wait()
        moving.run_until_complete(asyncio.wait_for(read(rounds), 60))

    at_once(first, second)
    moving.close()
