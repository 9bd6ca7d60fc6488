"""The context for caio, and aiofile on it."""

from __future__ import annotations

import asyncio
import os
import pathlib
import subprocess
import sys

import aiofile
import nowait.caio
import pytest
from conftest import Run


def test_the_tests_of_aiofile_pass() -> None:
    folder = os.environ.get("NOWAIT_AIOFILE_SOURCES")
    if folder is None:
        pytest.skip("NOWAIT_AIOFILE_SOURCES does not name the sources of aiofile")
    here = pathlib.Path(__file__).parent
    paths = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(here)])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    # Leave out the tests for each of caio's own contexts. The tests leave files open: that is no
    # failure.
    command += ["-p", "aiofile_on_nowait", "-k", "not _asyncio", "-W", "default"]
    command += ["-o", "asyncio_mode=auto", "--import-mode=importlib"]
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
    assert passed > 90, ended.stdout


def test_a_file_of_aiofile_is_read_and_written(disk: pathlib.Path, run_asyncio: Run) -> None:
    async def main() -> None:
        async with nowait.caio.AsyncioContext() as context:
            async with aiofile.AIOFile(disk / "file", "w+", context=context) as file:
                await asyncio.gather(*(file.write(f"{at:06}\n", at * 7) for at in range(1000)))
                await file.fsync()
                assert await file.read(6, 7 * 500) == "000500"
                assert len(context.context._files) == 1
            async with aiofile.AIOFile(disk / "file", "ab", context=context) as file:
                await file.write(b"appended", 0)
            async with aiofile.AIOFile(disk / "file", "rb", context=context) as file:
                assert (await file.read(-1, 6999)) == b"\nappended"
                with pytest.raises(OSError, match="not open for writing"):
                    await file.write(b"x", 0)

    run_asyncio(main())


def test_a_number_that_is_used_again_is_another_file(disk: pathlib.Path, run_asyncio: Run) -> None:
    async def main() -> None:
        async with nowait.caio.AsyncioContext() as context:
            numbers = set()
            for name in ("one", "two", "three"):
                (disk / name).write_text(name)
                fd = os.open(disk / name, os.O_RDONLY)
                assert await context.read(100, fd, 0) == name.encode()
                os.close(fd)
                numbers.add(fd)
                assert len(context.context._files) <= 2, "what was closed is closed here, too"
            assert len(numbers) < 3
            with pytest.raises(OSError, match="Bad file descriptor"):
                await context.read(1, fd, 0)

    run_asyncio(main())


def test_requests_are_those_of_caio(disk: pathlib.Path, run_asyncio: Run) -> None:
    async def main() -> None:
        context = nowait.caio.AsyncioContext(max_requests=2)
        fd = os.open(disk / "file", os.O_RDWR | os.O_CREAT)
        told: list[int] = []
        write = nowait.caio.Operation.write(b"hello", fd, 3)
        assert write.set_callback(told.append) and write.payload == b"hello"
        assert (write.fileno, write.offset, write.nbytes) == (fd, 3, 5)
        assert await context.submit(write) == write.get_value() == 5
        assert await context.fdsync(fd) is None
        reads = [nowait.caio.Operation.read(4, fd, at) for at in range(4)]
        for read in reads:
            read.set_callback(told.append)
        await asyncio.gather(*map(context.submit, reads))
        assert [read.get_value() for read in reads] == [b"\0\0\0h", b"\0\0he", b"\0hel", b"hell"]
        assert told == [5, 4, 4, 4, 4]
        with pytest.raises(ValueError, match="Operation object expected"):
            await context.submit(None)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="must be bytes"):
            nowait.caio.Operation.write("text", fd, 0)  # type: ignore[arg-type]
        os.close(fd)
        context.close()

    run_asyncio(main())
