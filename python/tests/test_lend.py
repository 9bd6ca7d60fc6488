"""Cached pages that are lent."""

from __future__ import annotations

import gc
import os
import pathlib
from typing import Any

import anyio
import nowait
import numpy
import pytest
from conftest import Run, drop_cache, python


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_views_are_the_bytes_in_order(disk: pathlib.Path, run: Run) -> None:
    content = os.urandom(1_000_001)
    (disk / "file").write_bytes(content)

    async def main() -> None:
        caches: list[nowait.CacheMode] = ["user", "host"]
        for cache in caches:
            async with nowait.open(disk / "file", cache=cache) as file:
                drop_cache(disk / "file")
                for length, offset in ((10, 0), (4096, 4095), (700_000, 123_456), (99, 999_990)):
                    async with file.lend(length, offset) as views:
                        assert b"".join(views) == content[offset : offset + length]
                        assert all(view.readonly and view.contiguous for view in views)
                async with file.lend(10, 2_000_000) as views:
                    assert b"".join(views) == b""
                async with file.lend(0, 0) as views:
                    assert b"".join(views) == b""

    run(main())


def test_what_is_cached_is_not_copied(disk: pathlib.Path, run: Run) -> None:
    (disk / "file").write_bytes(b"x" * (8 << 20))

    async def main() -> None:
        async with nowait.open(disk / "file", cache="user") as file:
            await file.read_at(8 << 20, 0)
            gc.collect()
            before = resident()
            async with file.lend(8 << 20, 0) as views:
                assert sum(map(len, views)) == 8 << 20 and len(views) > 1
                assert resident() - before < 4 << 20
                async with file.lend(8 << 20, 0) as again:
                    assert [id_of(view) for view in again] == [id_of(view) for view in views]

    run(main())


def id_of(view: memoryview) -> Any:
    return numpy.frombuffer(view, dtype="u1").__array_interface__["data"]


def test_a_write_waits_for_the_end_of_the_loan(disk: pathlib.Path, run: Run) -> None:
    (disk / "file").write_bytes(b"old " * 1024)

    async def main() -> None:
        async with nowait.open(disk / "file", "rb+", cache="user") as file:
            async with file.lend(4096, 0) as views:
                (view,) = views
                writing = file.write_at(b"new " * 1024, 0)
                for _ in range(10):
                    await anyio.lowlevel.checkpoint()
                assert not writing.done() and bytes(view) == b"old " * 1024
            assert await writing == 4096
            assert await file.read_at(4096, 0) == b"new " * 1024

    run(main())


def test_a_view_that_is_kept_keeps_the_pages(disk: pathlib.Path, run: Run) -> None:
    (disk / "file").write_bytes(b"kept" * 1024)

    async def main() -> None:
        kept: list[memoryview] = []
        file = await nowait.open(disk / "file", cache="user")
        with pytest.raises(BufferError, match="still in use"):
            async with file.lend(4096, 0) as views:
                kept.append(views[0][1:3])
        with pytest.raises(BufferError, match="still in use"):
            async with file.lend(4096, 0) as views:
                array = numpy.frombuffer(views[0], "u1")
        assert array[2] == ord("p")
        with pytest.raises(KeyError):
            async with file.lend(4096, 0) as views:
                kept.append(views[0][4:8])
                raise KeyError
        await file.close()
        assert [bytes(view) for view in kept] == [b"ep", b"kept"]
        with pytest.raises(ValueError, match="closed"):
            async with file.lend(1, 0):
                pass

    run(main())


def test_a_process_ends_with_pages_that_are_lent(disk: pathlib.Path) -> None:
    (disk / "file").write_bytes(b"lent" * 1024)
    script = """
import asyncio, nowait, os, sys
async def main():
    global kept
    file = await nowait.open(sys.argv[1], "rb+", cache="user")
    await file.write_at(b"LENT", 4)
    loan = file.lend(4096, 0)
    kept = [file, loan, await loan.__aenter__()]
asyncio.run(main())
if os.fork() == 0:
    assert bytes(kept[2][0][:8]) == b"lentLENT"
    del kept
    sys.exit()
assert os.wait()[1] == 0
print("over")
"""
    ended = python(script, str(disk / "file"), PYTHONWARNINGS="ignore")
    assert (ended.returncode, ended.stdout) == (0, "over\n"), ended.stderr
    assert (disk / "file").read_bytes()[:8] == b"lentLENT"
