"""Fixtures and helpers of the tests: a folder on each file system, each kind of loop, counts."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import anyio
import pytest
import sniffio
import trio

FULL = os.environ.get("NOWAIT_FULL") == "1"

# Seconds that a test, or a process of it, may take: a million reads of a debug build take minutes.
LIMIT = 3600 if FULL else 120

Run = Callable[[Coroutine[Any, Any, Any]], Any]

# Folders on a disk and in memory. In the container of a build machine both may be in memory.
FOLDERS = {"disk": "/var/tmp", "tmpfs": "/dev/shm"}


@pytest.fixture(params=list(FOLDERS))
def folder(request: pytest.FixtureRequest) -> Iterator[pathlib.Path]:
    made = tempfile.mkdtemp(prefix="nowait-python-", dir=FOLDERS[request.param])
    yield pathlib.Path(made)
    shutil.rmtree(made)


@pytest.fixture
def disk() -> Iterator[pathlib.Path]:
    made = tempfile.mkdtemp(prefix="nowait-python-", dir=FOLDERS["disk"])
    yield pathlib.Path(made)
    shutil.rmtree(made)


def run_asyncio_loop(make: Callable[[], asyncio.AbstractEventLoop]) -> Run:
    def run_in(coroutine: Coroutine[Any, Any, Any]) -> Any:
        loop = make()
        try:
            return loop.run_until_complete(asyncio.wait_for(coroutine, LIMIT))
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    return run_in


def run_trio(coroutine: Coroutine[Any, Any, Any]) -> Any:
    async def limited() -> Any:
        with trio.fail_after(LIMIT):
            return await coroutine

    return trio.run(limited)


# Each entry runs a coroutine in a new event loop, within a generous time limit. Not every
# interpreter has uvloop: if it is missing, a test that takes one of several loops uses asyncio's
# own instead.
ASYNCIO: dict[str, Run] = {"asyncio": run_asyncio_loop(asyncio.new_event_loop)}
if importlib.util.find_spec("uvloop"):
    ASYNCIO["uvloop"] = run_asyncio_loop(importlib.import_module("uvloop").new_event_loop)
else:
    ASYNCIO["uvloop"] = ASYNCIO["asyncio"]
RUNS = ASYNCIO | {"trio": run_trio}


@pytest.fixture(params=list(RUNS))
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine in each kind of event loop."""
    pytest.importorskip(request.param)  # not every interpreter has uvloop
    return RUNS[request.param]


@pytest.fixture(params=list(ASYNCIO))
def run_asyncio(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine that tests asyncio's futures and tasks."""
    pytest.importorskip(request.param)
    return ASYNCIO[request.param]


async def gather(*awaitables: Awaitable[Any]) -> list[Any]:
    """Await several concurrently, as `asyncio.gather` does, in any event loop."""
    if sniffio.current_async_library() == "asyncio":
        return await asyncio.gather(*awaitables)
    results: list[Any] = [None] * len(awaitables)

    async def take(index: int, awaitable: Awaitable[Any]) -> None:
        results[index] = await awaitable

    async with anyio.create_task_group() as group:
        for index, awaitable in enumerate(awaitables):
            group.start_soon(take, index, awaitable)
    return results


def python(script: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a child process, which has to end."""
    return subprocess.run(
        [sys.executable, "-c", script, *words],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def drop_cache(path: os.PathLike[str]) -> None:
    """Drop a file from the kernel's page cache, as far as the kernel does so."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the counts in cargo's form, which `cargo x ci` adds up."""
    count = {word: len(terminalreporter.stats.get(word, [])) for word in ("passed", "skipped")}
    failed = sum(len(terminalreporter.stats.get(word, [])) for word in ("failed", "error"))
    terminalreporter.write_line(
        f"test result: {'FAILED' if failed else 'ok'}. {count['passed']} passed; {failed} failed; "
        f"{count['skipped']} ignored"
    )
