"""The replacement for aiofiles."""

from __future__ import annotations

import asyncio
import os
import pathlib
import subprocess
import sys

import nowait
import nowait.aiofiles as aiofiles
import pytest
from conftest import Run

# Tests of aiofiles that cannot pass here. The first replaces aiofiles' function for opening files
# with a slow function; the second detaches an object of `io`, which nowait does not have; the third
# needs a user without root's privileges.
NOT_OURS = ["test_slow_file", "test_simple_detach", "test_access"]


def test_the_tests_of_aiofiles_pass() -> None:
    folder = os.environ.get("NOWAIT_AIOFILES_SOURCES")
    if folder is None:
        pytest.skip("NOWAIT_AIOFILES_SOURCES does not name the sources of aiofiles")
    here = pathlib.Path(__file__).parent
    paths = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(here)])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # aiofiles' tests leave files open: the warning is no failure.
    command += ["-p", "aiofiles_alias", "-W", "default", "-k", "not " + " and not ".join(NOT_OURS)]
    ended = subprocess.run(
        [*command, "tests"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    passed = int(ended.stdout.split(" passed")[0].split()[-1])
    assert passed > 150, ended.stdout


def test_files_are_those_of_nowait(disk: pathlib.Path, run_asyncio: Run) -> None:
    async def main() -> None:
        async with aiofiles.open(disk / "file", "w") as file:
            assert isinstance(file, nowait.TextFile)
            assert await file.write("one\ntwo\n") == 8
            assert not await file.isatty() and await file.writable() and await file.seekable()
            assert not hasattr(file, "detach")
        async with aiofiles.open(disk / "file") as file:
            assert [line async for line in file] == ["one\n", "two\n"]
        file = await aiofiles.open(disk / "file", "rb+", 0)
        assert isinstance(file, nowait.File) and await file.readall() == b"one\ntwo\n"
        await file.close()
        async with aiofiles.open("/dev/null", "wb") as nothing:
            assert await nothing.write(b"x") == 1
        with pytest.raises(FileNotFoundError):
            await aiofiles.open(disk / "missing")
        with pytest.raises(ValueError, match="binary mode"):
            await aiofiles.open(disk / "file", "rb", encoding="utf-8")

    run_asyncio(main())


def test_descriptors_pipes_and_openers_are_for_threads(
    disk: pathlib.Path, run_asyncio: Run
) -> None:
    os.mkfifo(disk / "pipe")

    async def main() -> None:
        read = asyncio.ensure_future(aiofiles.open(disk / "pipe"))
        async with aiofiles.open(disk / "pipe", "w") as writer:
            await writer.write("through\nthe pipe\n")
        reader = await read
        assert [line async for line in reader] == ["through\n", "the pipe\n"]
        await reader.close()
        number = os.open(disk / "file", os.O_RDWR | os.O_CREAT)
        async with aiofiles.open(number, "wb+") as file:
            assert file.fileno() == number
            await file.write(b"abc")
        async with aiofiles.open(disk / "file", "rb", opener=os.open) as file:
            assert await file.read() == b"abc"

    run_asyncio(main())


def test_the_rest_is_there(disk: pathlib.Path, run_asyncio: Run) -> None:
    async def main() -> None:
        async with aiofiles.tempfile.TemporaryDirectory(dir=disk) as folder:
            async with aiofiles.tempfile.NamedTemporaryFile("w+", dir=folder) as file:
                await file.write("kept")
                await file.flush()
                assert (await aiofiles.os.stat(file.name)).st_size == 4
                assert await aiofiles.os.listdir(folder) == [os.path.basename(file.name)]
        assert not await aiofiles.os.path.exists(folder)
        await aiofiles.stdout.write("")

    run_asyncio(main())
