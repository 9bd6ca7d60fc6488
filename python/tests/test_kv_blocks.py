"""The engine of `nowait_vllm`: blocks in files, on full disks and in processes that are killed."""

from __future__ import annotations

import importlib.util
import mmap
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import FULL, LIMIT, python
from kill_blocks import key_of
from nowait_vllm._blocks import BlockFolder

BLOCK = 16 << 10
SLOTS = 16


def open_blocks(
    root: pathlib.Path, memory: mmap.mmap | bytearray, capacity: int | None = None
) -> BlockFolder:
    return BlockFolder(memory, str(root), str(root / "model_r0"), BLOCK, capacity, 8 * BLOCK, True)


def files_below(folder: pathlib.Path) -> list[str]:
    """Return the names of files; an eviction may remove folders meanwhile, which glob refuses."""
    return [name for _, _, names in os.walk(folder) for name in names]


def run(blocks: BlockFolder, loads: bool, numbers: list[int], slots: list[int]) -> list[str]:
    """Run a job to its end; return the reasons of failed blocks."""
    blocks.submit(5, loads, [key_of(number) for number in numbers], slots)
    blocks.wait_idle()
    [(job, was_load, _, seconds, queued, failures)] = blocks.finished()
    assert (job, was_load) == (5, loads) and seconds >= 0 and queued >= 0
    return [reason for _, reason in failures]


def test_blocks_come_back_and_close_gives_the_buffer_back(folder: pathlib.Path) -> None:
    memory = mmap.mmap(-1, SLOTS * BLOCK)
    blocks = open_blocks(folder, memory)
    for slot in range(4):
        memory[slot * BLOCK : (slot + 1) * BLOCK] = bytes([slot + 1]) * BLOCK
    assert run(blocks, False, [1, 2, 3, 4], [0, 1, 2, 3]) == []
    assert run(blocks, True, [4, 1], [8, 9]) == []
    assert memory[8 * BLOCK : 10 * BLOCK] == b"\4" * BLOCK + b"\1" * BLOCK
    assert blocks.contains([key_of(1), key_of(9)]) == [True, False]
    with pytest.raises(BufferError):
        memory.close()
    blocks.close()
    memory.close()


def test_arguments_that_do_not_fit_are_refused(disk: pathlib.Path) -> None:
    blocks = open_blocks(disk, bytearray(SLOTS * BLOCK))
    with pytest.raises(ValueError, match="one slot for each key"):
        blocks.submit(1, True, [key_of(1)], [])
    with pytest.raises(TypeError):
        blocks.submit(1, True, ["no bytes"], [0])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="more than 0 bytes"):
        BlockFolder(bytearray(8), str(disk), str(disk), 0, None, 1, False)
    with pytest.raises(BufferError):
        BlockFolder(b"12345678", str(disk), str(disk), 8, None, 1, False)
    assert "no slot 16" in run(blocks, False, [1], [SLOTS])[0]
    blocks.close()


def test_a_forked_child_is_refused(disk: pathlib.Path) -> None:
    script = """
import mmap, os, sys
from nowait_vllm._blocks import BlockFolder
blocks = BlockFolder(mmap.mmap(-1, 4096), sys.argv[1], sys.argv[1] + "/r0", 4096, None, 1, False)
child = os.fork()
if child == 0:
    for call in (
        lambda: blocks.submit(1, True, [], []),
        blocks.finished,
        blocks.evicted,
        blocks.wait_idle,
        lambda: blocks.touch([]),
    ):
        try:
            call()
        except RuntimeError as error:
            print(error, flush=True)
    blocks.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    ran = python(script, str(disk), PYTHONWARNINGS="ignore")
    assert ran.stdout.count("belongs to the process that has opened it") == 5, ran


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system as root")
def test_a_full_disk_fails_stores_and_leaves_nothing_behind(disk: pathlib.Path) -> None:
    small = disk / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={6 * BLOCK}", "small", str(small)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounts of tmpfs are not allowed here")
    try:
        blocks = open_blocks(small, bytearray(SLOTS * BLOCK))
        reasons = run(blocks, False, list(range(12)), list(range(12)))
        assert reasons and all("cannot store" in it or "bytes" in it for it in reasons)
        stored = blocks.contains([key_of(number) for number in range(12)])
        assert stored.count(True) == 12 - len(reasons)
        assert list(small.glob("**/*.tmp")) == []
        # Make space for one more block.
        pathlib.Path(blocks.path(key_of(stored.index(True))) or "").unlink()
        assert run(blocks, False, [stored.index(False)], [0]) == []
        blocks.close()
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system as root")
def test_a_full_disk_at_the_start_does_not_turn_direct_io_off(disk: pathlib.Path) -> None:
    small = disk / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "small", str(small)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounts of tmpfs are not allowed here")
    try:
        memory = mmap.mmap(-1, SLOTS * BLOCK)
        empty = open_blocks(small, memory)
        is_direct = empty.is_direct
        empty.close()
        with pytest.raises(OSError, match="No space"):
            (small / "filler").write_bytes(bytes(1 << 20))
        full = open_blocks(small, memory)
        assert full.is_direct == is_direct
        full.close()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_two_processes_stay_within_the_capacity(disk: pathlib.Path) -> None:
    script = """
import mmap, os, pathlib, sys
sys.path.insert(0, sys.argv[2])
from test_kv_blocks import BLOCK, files_below, open_blocks, run
root = pathlib.Path(sys.argv[1])
blocks = open_blocks(root, mmap.mmap(-1, 16 * BLOCK), 24 * BLOCK)
for number in range(40):
    failed = run(blocks, False, [int(sys.argv[3]) + number], [0])
    assert failed == [], failed
    count = len(files_below(root / "model_r0"))
    assert count <= 24, count
blocks.close()
"""
    tests = str(pathlib.Path(__file__).parent)
    words = [sys.executable, "-c", script, str(disk), tests]
    both = [subprocess.Popen([*words, str(first)]) for first in (0, 1000)]
    assert [process.wait(LIMIT) for process in both] == [0, 0]
    count = len(list(disk.glob("model_r0/*/*/*.bin")))
    assert 12 <= count <= 24


def test_a_kill_at_any_moment_leaves_no_wrong_block() -> None:
    program = pathlib.Path(__file__).parent / "kill_blocks.py"
    words = [sys.executable, str(program), "2000" if FULL else "20"]
    killed = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)
    assert killed.returncode == 0, killed
    assert " 0 wrong" in killed.stdout


VLLM_WITHOUT_TIERS = """
import sys
sys.path.insert(0, sys.argv[1])
import nowait_vllm.tier
"""


def test_another_vllm_is_refused_in_one_line_that_names_both(disk: pathlib.Path) -> None:
    if importlib.util.find_spec("vllm"):
        pytest.skip("vLLM is installed")
    ran = python(VLLM_WITHOUT_TIERS, str(disk))
    assert "nowait_vllm needs vllm 0.33: run pip install" in ran.stderr, ran
    (disk / "vllm-0.12.0.dist-info").mkdir()
    (disk / "vllm-0.12.0.dist-info/METADATA").write_text("Name: vllm\nVersion: 0.12.0\n")
    (disk / "vllm").mkdir()
    (disk / "vllm/__init__.py").touch()
    ran = python(VLLM_WITHOUT_TIERS, str(disk))
    last = ran.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: nowait-vllm ") and "does not fit vllm 0.12.0: " in last
