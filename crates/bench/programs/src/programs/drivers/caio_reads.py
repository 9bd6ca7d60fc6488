"""Reads a file through caio as an asyncio program does, and looks how late its event loop comes.

Usage: caio_reads.py MODE FILE BLOCK_BYTES SIZE_BYTES DEPTH SECONDS SEED OUTPUT
MODE is linux (native AIO), uring or thread. No block is read twice; the figures are written to
OUTPUT as JSON, times in microseconds.
"""
import asyncio
import importlib
import json
import os
import random
import resource
import sys
import time

TURN_S = 0.001  # the event loop is asked to come back so often


def percentile(times, part):
    times = sorted(times)
    return 1e6 * times[min(len(times) - 1, int(len(times) * part))] if times else 0.0


def cpu_us():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return 1e6 * (used.ru_utime + used.ru_stime)


async def watch_the_loop(late, is_over):
    """Sleeps and notes by how much later than asked it was woken."""
    while not is_over.is_set():
        begun = time.monotonic()
        await asyncio.sleep(TURN_S)
        late.append(time.monotonic() - begun - TURN_S)


async def read(context, file, block, offsets, deadline, latencies):
    for offset in offsets:
        begun = time.monotonic()
        if begun > deadline:
            return
        data = await context.read(block, file, offset)
        assert len(data) == block, f"{len(data)} of {block} bytes at {offset}"
        latencies.append(time.monotonic() - begun)


async def measure(mode, path, block, size, depth, seconds, seed):
    context_of = importlib.import_module(f"caio.{mode}_asyncio").AsyncioContext
    offsets = [index * block for index in range(size // block)]
    random.Random(seed).shuffle(offsets)
    file = os.open(path, os.O_RDONLY)
    late, latencies, is_over = [], [], asyncio.Event()
    async with context_of(max_requests=2 * depth) as context:
        before, begun = cpu_us(), time.monotonic()
        watch = asyncio.create_task(watch_the_loop(late, is_over))
        shares = (offsets[index::depth] for index in range(depth))
        deadline = begun + seconds
        await asyncio.gather(
            *(read(context, file, block, share, deadline, latencies) for share in shares)
        )
        elapsed, used = time.monotonic() - begun, cpu_us() - before
        is_over.set()
        await watch
    operations = len(latencies)
    return {
        "iops": operations / elapsed,
        "bytes_per_s": operations * block / elapsed,
        "latency_us_p50": percentile(latencies, 0.5),
        "latency_us_p99": percentile(latencies, 0.99),
        "latency_us_max": 1e6 * max(latencies),
        "held_up_us_p99": percentile(late, 0.99),
        "held_up_us_max": 1e6 * max(late),
        "cpu_us_per_operation": used / operations,
    }


def main():
    mode, path, block, size, depth, seconds, seed, output = sys.argv[1:]
    module = {"linux": "linux_aio", "uring": "linux_uring", "thread": "thread_aio"}[mode]
    numbers = int(block), int(size), int(depth), float(seconds), int(seed)
    figures = asyncio.run(measure(module, path, *numbers))
    with open(output, "w") as file:
        json.dump(figures, file)


main()
