"""Moves blocks between memory and a file with NIXL's POSIX plugin, as a KV cache is loaded.

Usage: nixl_transfers.py MODE DIRECTION FILE BLOCK_BYTES COUNT SIZE_BYTES SECONDS SEED OUTPUT
MODE is use_aio, use_posix_aio or use_uring; DIRECTION is READ or WRITE; a transfer is of COUNT
blocks at random places. The figures are written to OUTPUT as JSON, times in microseconds.
"""
import ctypes
import json
import mmap
import os
import random
import resource
import sys
import time

from nixl_cu12._api import nixl_agent, nixl_agent_config

WAYS = ("use_aio", "use_posix_aio", "use_uring")


def percentile(times, part):
    times = sorted(times)
    return 1e6 * times[min(len(times) - 1, int(len(times) * part))]


def cpu_us():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return 1e6 * (used.ru_utime + used.ru_stime)


def transfer(agent, request):
    """Makes one transfer; returns the seconds of the call that begins it, and of the whole."""
    begun = time.monotonic()
    state = agent.transfer(request)
    posted = time.monotonic()
    while state == "PROC":
        state = agent.check_xfer_state(request)
    assert state == "DONE", f"the transfer ended as {state}"
    return posted - begun, time.monotonic() - begun


def measure(mode, direction, path, block, count, size, seconds, seed):
    agent = nixl_agent("bench", nixl_agent_config(backends=[]))
    agent.create_backend("POSIX", {way: str(way == mode).lower() for way in WAYS})
    memory = mmap.mmap(-1, block * count)
    memory.write(b"\x5a" * len(memory))  # pages that are there already
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    file = os.open(path, os.O_RDWR)
    in_memory = agent.register_memory([(start, block * count, 0, "")], "DRAM")
    in_file = agent.register_memory([(0, size, file, "")], "FILE")
    blocks = list(range(size // block))
    random.Random(seed).shuffle(blocks)
    calls, times, used, deadline = [], [], 0.0, time.monotonic() + seconds
    ours = agent.get_xfer_descs([(start + i * block, block, 0) for i in range(count)], "DRAM")
    for first in range(0, len(blocks) - count + 1, count):
        theirs = [(index * block, block, file) for index in blocks[first:first + count]]
        theirs = agent.get_xfer_descs(theirs, "FILE")
        request = agent.initialize_xfer(direction, ours, theirs, "bench")
        before = cpu_us()
        call, all_of_it = transfer(agent, request)
        used += cpu_us() - before
        calls.append(call)
        times.append(all_of_it)
        agent.release_xfer_handle(request)
        if time.monotonic() > deadline:
            break
    agent.deregister_memory(in_file)
    agent.deregister_memory(in_memory)
    return {
        "bytes_per_s": len(times) * count * block / sum(times),
        "iops": len(times) * count / sum(times),
        "latency_us_p50": percentile(times, 0.5),
        "latency_us_p99": percentile(times, 0.99),
        "latency_us_max": 1e6 * max(times),
        "held_up_us_p99": percentile(calls, 0.99),
        "held_up_us_max": 1e6 * max(calls),
        "cpu_us_per_operation": used / len(times) / count,
    }


def main():
    mode, direction, path, *numbers, seconds, seed, output = sys.argv[1:]
    block, count, size = map(int, numbers)
    figures = measure(mode, direction, path, block, count, size, float(seconds), int(seed))
    with open(output, "w") as file:
        json.dump(figures, file)


main()
