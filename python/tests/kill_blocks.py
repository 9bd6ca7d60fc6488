"""Kills processes that store, load and evict blocks, and looks for wrong blocks afterwards.

    python python/tests/kill_blocks.py ROUNDS [SEED]

In each round two processes share a folder, until SIGKILL ends both at a random moment. Then each
block in the folder must have the content that its name stands for. The processes check what they
load, too. Prints the counts; the exit status is 1 if a block was wrong.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback

from nowait_vllm._blocks import BlockFolder

BLOCK = 64 << 10
SLOTS = 16
KEYS = 400
CAPACITY = 128 * BLOCK
# A time so long ago that a sweep removes a temporary file of that age.
LONG_AGO = time.time() - 3600


def key_of(number: int) -> bytes:
    return hashlib.sha256(number.to_bytes(4, "big")).digest() + bytes(4)


def content(key: bytes) -> bytes:
    return hashlib.sha512(key).digest() * (BLOCK // 64)


def work(root: pathlib.Path, seed: int, ready: int, wrong: int) -> None:
    """Store and load blocks for ever; write to ``ready`` first, to ``wrong`` for a wrong load."""
    chance = random.Random(seed)
    memory = mmap.mmap(-1, SLOTS * BLOCK)
    blocks = BlockFolder(
        memory, str(root), str(root / "model_r0"), BLOCK, CAPACITY, 8 * BLOCK, False
    )
    os.write(ready, b"r")
    half = SLOTS // 2
    for job in range(1 << 30):
        stored = [key_of(number) for number in chance.sample(range(KEYS), half)]
        loaded = [key_of(number) for number in chance.sample(range(KEYS), half)]
        for slot, key in enumerate(stored):
            memory[slot * BLOCK : (slot + 1) * BLOCK] = content(key)
        memory[half * BLOCK :] = bytes(half * BLOCK)
        blocks.submit(2 * job, False, stored, list(range(half)))
        blocks.submit(2 * job + 1, True, loaded, list(range(half, SLOTS)))
        blocks.wait_idle()
        failed = {
            index for _, loads, *_, failures in blocks.finished() if loads for index, _ in failures
        }
        for index in set(range(half)) - failed:
            at = (half + index) * BLOCK
            if memory[at : at + BLOCK] != content(loaded[index]):
                os.write(wrong, b"w")


def start(root: pathlib.Path, seed: int, ready: int, wrong: int) -> int:
    """Fork a process that works until it is killed; this one never starts an engine."""
    child = os.fork()
    if child:
        return child
    try:
        work(root, seed, ready, wrong)
    except BaseException:
        traceback.print_exc()
    os._exit(3)


def check(root: pathlib.Path) -> tuple[int, int, int]:
    """Count the blocks, the wrong ones, and temporary files, which become old."""
    names = {key_of(number)[:-4].hex(): content(key_of(number)) for number in range(KEYS)}
    whole = wrong = left = 0
    for path in root.glob("model_r0/*/*/*"):
        if path.suffix == ".tmp":
            left += 1
            os.utime(path, (LONG_AGO, LONG_AGO))
        elif path.read_bytes() == names[path.stem]:
            whole += 1
        else:
            wrong += 1
    return whole, wrong, left


def main(rounds: int, seed: int) -> int:
    chance = random.Random(seed)
    root = pathlib.Path(tempfile.mkdtemp(prefix="nowait-kill-", dir="/var/tmp"))
    told, wrong_loads = os.pipe()
    checked = wrong = left = largest = ended = 0
    for count in range(rounds):
        seeds = [chance.getrandbits(32) for _ in range(2)]
        started, ready = os.pipe()
        children = [start(root, seed, ready, wrong_loads) for seed in seeds]
        os.close(ready)
        if count % 10:  # else also while they start
            assert os.read(started, 1) == b"r"
        time.sleep(chance.uniform(0, 0.03))
        for child in children:
            os.kill(child, signal.SIGKILL)
        statuses = [os.waitpid(child, 0)[1] for child in children]
        os.close(started)
        ended += sum(not os.WIFSIGNALED(status) for status in statuses)
        found = check(root)
        largest = max(largest, (found[0] + found[2]) * BLOCK)
        checked, wrong, left = checked + found[0], wrong + found[1], left + found[2]
    os.write(wrong_loads, b"-")
    wrong += len(os.read(told, 1 << 16)) - 1
    shutil.rmtree(root)
    print(
        f"{rounds} rounds, {checked} blocks checked, {wrong} wrong, {left} temporary files left, "
        f"at most {largest // BLOCK} of {CAPACITY // BLOCK} blocks, {ended} ended by themselves"
    )
    return int(wrong > 0 or ended > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
