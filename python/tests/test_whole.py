"""Whole files, by path."""

from __future__ import annotations

import errno
import os
import pathlib
import platform
import threading

import anyio
import nowait
import pytest
from conftest import Run, gather, python


def test_what_is_written_whole_is_read_whole(folder: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        for atomic in (False, True):
            for data in (b"x" * 300_000, b"", bytearray(b"abc"), memoryview(b"abcd")[::1]):
                path = folder / "file"
                assert await nowait.write_bytes(path, data, atomic=atomic) == len(data)
                assert await nowait.read_bytes(path) == data == path.read_bytes()
        assert os.listdir(folder) == ["file"], "no other file is left"
        assert await nowait.read_bytes("/proc/self/stat"), "a file without a size"

    run(main())


@pytest.mark.parametrize("newline", [None, "", "\n", "\r\n"])
def test_text_is_coded_as_by_open(folder: pathlib.Path, run: Run, newline: str | None) -> None:
    text = "één\r\ntwo\nthree\rfour"

    async def main() -> None:
        assert await nowait.write_text(folder / "ours", text, newline=newline) == len(text)
        with open(folder / "theirs", "w", encoding="utf-8", newline=newline) as file:
            file.write(text)
        assert (folder / "ours").read_bytes() == (folder / "theirs").read_bytes()
        with open(folder / "theirs", encoding="utf-8", newline=newline) as file:
            assert await nowait.read_text(folder / "ours", newline=newline) == file.read()
        await nowait.write_text(folder / "ours", "ä", "latin-1")
        assert (folder / "ours").read_bytes() == b"\xe4"
        with pytest.raises(UnicodeDecodeError):
            await nowait.read_text(folder / "ours")
        assert await nowait.read_text(folder / "ours", errors="replace") == "\ufffd"

    run(main())


def test_an_atomic_write_keeps_permissions_and_links(disk: pathlib.Path, run: Run) -> None:
    path, link = disk / "file", disk / "link"
    path.write_bytes(b"old")
    path.chmod(0o640)
    link.symlink_to(path)

    async def main() -> None:
        await nowait.write_bytes(link, b"new", atomic=True)

    run(main())
    assert link.is_symlink() and path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640


def test_an_atomic_write_goes_to_names_of_any_length_and_behind_links(
    disk: pathlib.Path, run: Run
) -> None:
    longest, link = disk / ("n" * 255), disk / "link"
    link.symlink_to("target")

    async def main() -> None:
        await nowait.write_bytes(longest, b"long", atomic=True)
        await nowait.write_bytes(link, b"new", atomic=True)
        link.unlink()
        link.symlink_to("link")
        with pytest.raises(OSError) as loop:
            await nowait.write_bytes(link, b"never", atomic=True)
        assert loop.value.errno == errno.ELOOP

    run(main())
    assert longest.read_bytes() == b"long"
    assert (disk / "target").read_bytes() == b"new", "what the link named was not there"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away")
def test_an_atomic_write_keeps_the_owner(disk: pathlib.Path, run: Run) -> None:
    path = disk / "file"
    path.write_bytes(b"old")
    path.chmod(0o4750)
    os.chown(path, 1234, 4321)
    path.chmod(0o4750)

    async def main() -> None:
        await nowait.write_bytes(path, b"new", atomic=True)

    run(main())
    status = path.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (1234, 4321, 0o4750)


def test_a_file_larger_than_memory_is_refused(disk: pathlib.Path, run: Run) -> None:
    path = disk / "sparse"
    path.touch()
    os.truncate(path, 8 << 40)

    async def main() -> None:
        with pytest.raises(MemoryError):
            await nowait.read_bytes(path)

    run(main())


def test_a_failed_atomic_write_leaves_the_old_file(disk: pathlib.Path, run: Run) -> None:
    async def main() -> None:
        (disk / "folder").mkdir()
        with pytest.raises(IsADirectoryError):
            await nowait.write_bytes(disk / "folder", b"new", atomic=True)
        with pytest.raises(FileNotFoundError) as missing:
            await nowait.write_bytes(disk / "none" / "file", b"new", atomic=True)
        assert missing.value.filename == str(disk / "none" / "file")
        with pytest.raises(FileNotFoundError):
            await nowait.read_bytes(disk / "missing")
        assert os.listdir(disk) == ["folder"]

    run(main())


def test_readers_never_see_half_of_an_atomic_write(disk: pathlib.Path, run: Run) -> None:
    path = disk / "file"
    path.write_bytes(b"0" * 100_000)

    async def main() -> None:
        for round in range(20):
            new = bytes([48 + round % 10]) * 100_000
            write = nowait.write_bytes(path, new, atomic=True)
            while not write.done():
                read = await nowait.read_bytes(path)
                assert read == read[:1] * 100_000
                await anyio.sleep(0)  # what is read at once leaves the loop no turn
            await write
            assert await nowait.read_bytes(path) == new

    run(main())


def test_a_copy_is_the_same(folder: pathlib.Path, run: Run) -> None:
    (folder / "from").write_bytes(os.urandom(3 << 20))
    (folder / "from").chmod(0o600)

    async def main() -> None:
        assert await nowait.copy(folder / "from", folder / "to") == 3 << 20
        assert (folder / "to").read_bytes() == (folder / "from").read_bytes()
        assert (folder / "to").stat().st_mode & 0o777 == 0o600
        with pytest.raises(FileNotFoundError) as missing:
            await nowait.copy(folder / "missing", folder / "to")
        assert missing.value.filename == str(folder / "missing")

    run(main())


def test_a_copy_onto_itself_is_refused(disk: pathlib.Path, run: Run) -> None:
    (disk / "file").write_bytes(b"content")
    (disk / "link").symlink_to("file")
    os.link(disk / "file", disk / "other")

    async def main() -> None:
        for name in ("file", "link", "other"):
            with pytest.raises(OSError) as same:
                await nowait.copy(disk / "file", disk / name)
            assert same.value.errno == errno.EINVAL

    run(main())
    assert (disk / "file").read_bytes() == b"content"


def test_many_small_files_are_read_side_by_side(disk: pathlib.Path, run: Run) -> None:
    for number in range(300):
        (disk / str(number)).write_bytes(b"%d" % number)

    async def main() -> None:
        read = await gather(*(nowait.read_bytes(disk / str(at)) for at in range(300)))
        assert read == [b"%d" % number for number in range(300)]

    run(main())


def test_a_small_cached_file_is_read_inside_the_call(folder: pathlib.Path, run: Run) -> None:
    if tuple(map(int, platform.release().split(".")[:2])) < (6, 8):
        pytest.skip("kernel: mounts have no numbers of their own before Linux 6.8")
    files = [(folder / str(size), os.urandom(size)) for size in (1, 4096, 256 << 10)]
    for path, data in files:
        path.write_bytes(data)

    async def main() -> None:
        assert await nowait.read_bytes(files[0][0]) == files[0][1], "the mount is known now"
        for path, data in files:
            # Make many reads, because the kernel may refuse to serve one at once while it is busy.
            reads = [nowait.read_bytes(path) for _ in range(100)]
            assert any(read.done() for read in reads)
            assert await gather(*reads) == [data] * 100
        # A read sees changes made since then, and reads all bytes of a longer file.
        for size in (10, 300_000, 0, 5):
            data = os.urandom(size)
            files[0][0].write_bytes(data)
            assert await nowait.read_bytes(files[0][0]) == data

    run(main())


def test_to_read_small_files_leaves_no_descriptor(disk: pathlib.Path, run: Run) -> None:
    path = disk / "file"
    path.write_bytes(b"content")

    async def main() -> None:
        await nowait.read_bytes(path)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(1000):
            assert await nowait.read_bytes(path) == b"content"
        assert len(os.listdir("/proc/self/fd")) == before

    run(main())


def test_the_call_does_not_wait_for_a_pipe(folder: pathlib.Path, run: Run) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "file").write_bytes(b"known")

    async def main() -> None:
        await nowait.read_bytes(folder / "file")
        read = nowait.read_bytes(folder / "pipe")
        assert not read.done()
        writer = threading.Thread(target=(folder / "pipe").write_bytes, args=(b"content",))
        writer.start()
        assert await read == b"content"
        writer.join()

    run(main())


@pytest.mark.parametrize("denied", ["openat2=ENOSYS", "openat2=EPERM", "rwf=EPERM"])
def test_small_files_are_read_where_a_filter_refuses_the_calls(
    disk: pathlib.Path, denied: str
) -> None:
    container = os.environ.get("NOWAIT_SECCOMP_RUN")
    assert container, "NOWAIT_SECCOMP_RUN names the program that installs the filter"
    (disk / "file").write_bytes(b"content")
    script = (
        "import os, sys; os.execv(sys.argv[1], [sys.argv[1], '--deny', sys.argv[2], '--', "
        "sys.executable, '-c', sys.argv[3], sys.argv[4]])"
    )
    ended = python(script, container, denied, SMALL, str(disk / "file"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "False False False ", "")


SMALL = """
import asyncio, nowait, sys

async def main():
    for _ in range(3):
        read = nowait.read_bytes(sys.argv[1])
        print(read.done(), end=" ")
        assert await read == b"content"

asyncio.run(main())
"""
