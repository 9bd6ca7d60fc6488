"""The names that scripts outside rely on."""

from __future__ import annotations

import asyncio
import inspect
import pathlib

import nowait
import nowait.aiofiles as aiofiles
import pytest


@pytest.mark.parametrize("cache", ["host", "user"])
def test_requests_have_their_names_arguments_and_results(cache: str, disk: pathlib.Path) -> None:
    async def main() -> None:
        (disk / "file").write_bytes(b"0123456789")
        mode: nowait.CacheMode = "user" if cache == "user" else "host"
        async with nowait.open(disk / "file", mode="r+b", cache=mode) as f:
            assert await f.read_at(length=3, offset=2) == b"234"
            buffer = bytearray(4)
            assert await f.readinto_at(buffer=buffer, offset=6) == 4 and buffer == b"6789"
            assert await f.write_at(data=b"ab", offset=0) == 2
            assert await f.read_many([(0, 3), (8, 9)]) == [b"ab2", b"89"]
            assert await f.sync() is None
        assert await nowait.read_bytes(disk / "file") == b"ab23456789"

    asyncio.run(main())


def test_a_file_is_one_of_bytes_unless_the_mode_says_otherwise() -> None:
    parameters = inspect.signature(nowait.open).parameters
    assert list(parameters)[:2] == ["path", "mode"] and parameters["mode"].default == "rb"


def test_files_have_the_methods_of_aiofiles(disk: pathlib.Path) -> None:
    async def main() -> None:
        for opening in (nowait.open(disk / "text", "w+"), aiofiles.open(disk / "text", "w+")):
            async with opening as f:
                assert await f.write("one\ntwo\n") == 8
                await f.writelines(["three\n"])
                await f.flush()
                assert await f.seek(0) == 0 and await f.tell() == 0
                assert await f.readline() == "one\n"
                assert await f.readlines() == ["two\n", "three\n"]
                assert await f.truncate(4) == 4 and await f.seek(0) == 0
                assert [line async for line in f] == ["one\n"] and f.fileno() > 2
            assert f.closed

    asyncio.run(main())
