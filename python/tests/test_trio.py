"""trio's own features: its scopes, its checkpoints, and failures for which it has no place."""

from __future__ import annotations

import asyncio
import gc
import logging
import pathlib
import sys
from typing import Any

import nowait
import pytest
import trio
import trio.testing
from conftest import drop_cache, python, run_trio


@pytest.fixture
def path(disk: pathlib.Path) -> pathlib.Path:
    (disk / "file").write_bytes(bytes(range(256)) * 16384)
    return disk / "file"


async def pending(file: nowait.File, path: pathlib.Path) -> nowait.Operation[bytes]:
    while True:
        drop_cache(path)
        operation = file.read_at(1 << 20, 0)
        if not operation.done():
            return operation


def test_what_one_task_gives_up_another_still_gets(path: pathlib.Path) -> None:
    async def main() -> None:
        async with nowait.open(path) as file:
            operation = await pending(file, path)
            lengths: list[int] = []

            async def wait() -> None:
                lengths.append(len(await operation))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                with trio.move_on_after(0):
                    await operation
            assert lengths == [1 << 20] and not operation.cancelled()

    run_trio(main())


def test_a_cancelled_scope_loses_nothing_that_was_written(path: pathlib.Path) -> None:
    async def main() -> None:
        for number in range(50):
            with trio.CancelScope() as scope:
                async with nowait.open(path, "w") as file:
                    await file.write("x" * 50_000)
                    await file.write("y" * 50_000)
                    scope.cancel()
                    if number % 2:
                        await trio.lowlevel.checkpoint()
            assert scope.cancelled_caught == bool(number % 2) and file.closed
            assert path.read_bytes() == b"x" * 50_000 + b"y" * 50_000

    run_trio(main())


def test_lines_are_checkpoints_part_by_part(path: pathlib.Path) -> None:
    path.write_bytes(b"line\n" * 100_000)

    async def main() -> None:
        count = 0
        with trio.CancelScope() as scope:
            async with nowait.open(path) as file:
                async for _ in file:
                    count += 1
                    scope.cancel()
        assert scope.cancelled_caught and count < 20_000

    run_trio(main())


def test_a_task_that_gives_up_a_lock_passes_it_on(path: pathlib.Path) -> None:
    async def main() -> None:
        async with nowait.open(path) as file:
            lock, order = file._lock, []

            async def take(name: int, scope: trio.CancelScope) -> None:
                with scope:
                    async with lock:
                        order.append(name)

            scopes = [trio.CancelScope() for _ in range(4)]
            async with trio.open_nursery() as nursery:
                async with lock:
                    for name, scope in enumerate(scopes):
                        nursery.start_soon(take, name, scope)
                        await trio.testing.wait_all_tasks_blocked()
                    scopes[1].cancel()
                # The first task is the next owner of the lock, and is cancelled before it runs.
                scopes[0].cancel()
            assert order in ([2, 3], [0, 2, 3]), order
            async with lock:
                pass

    run_trio(main())


def test_a_failure_that_no_task_awaits_is_logged(
    path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        opening = nowait.open(path.parent / "missing")._file._open()
        while not opening.done():
            await trio.lowlevel.checkpoint()

    with caplog.at_level(logging.ERROR, "nowait"):
        run_trio(main())
        gc.collect()
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [
        FileNotFoundError
    ]


def test_what_the_program_cancels_ends_and_calls_back(path: pathlib.Path) -> None:
    async def main() -> None:
        async with nowait.open(path) as file:
            operation = await pending(file, path)
            told: list[Any] = []
            operation.add_done_callback(told.append)
            assert operation.cancel() and told == [], "callbacks are for the loop to call"
            with pytest.raises(asyncio.CancelledError):
                await operation
            while not told:
                await trio.lowlevel.checkpoint()
            assert told == [operation]

    run_trio(main())


def test_trio_may_be_the_guest_of_a_loop_that_reads_too(path: pathlib.Path) -> None:
    async def read() -> int:
        total = 0
        async with nowait.open(path) as file:
            for at in range(100):
                drop_cache(path)
                total += len(await file.read_at(4096, at * 4096))
        return total

    async def host() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Any] = loop.create_future()
        trio.lowlevel.start_guest_run(
            read, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=ended.set_result
        )
        own = await read()
        return own, (await ended).unwrap()

    assert asyncio.run(host()) == (409_600, 409_600)


def test_neither_needs_the_other() -> None:
    script = """
import sys
class Missing:
    def find_spec(self, name, *rest):
        if name in ("trio", "sniffio", "anyio"):
            raise ImportError(name)
sys.meta_path.insert(0, Missing())
import asyncio, nowait
async def main():
    async with nowait.open(sys.executable) as file:
        return await file.read(4)
print(asyncio.run(main()))
"""
    ended = python(script)
    assert (ended.returncode, ended.stdout) == (0, "b'\\x7fELF'\n"), ended.stderr
    assert "trio" in sys.modules
