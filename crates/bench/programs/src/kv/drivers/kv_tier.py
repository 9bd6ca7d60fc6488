"""Plays vLLM's scheduler before a secondary tier of its KV cache offloading.

Usage: kv_tier.py TIER FOLDER DIRECTION BLOCK_BYTES JOBS SIZE_BYTES SECONDS SEED OUTPUT
TIER is the configuration of the tier as JSON, its folder excepted. DIRECTION is load, store, mixed,
or prepare, which stores the blocks that load and mixed ask for. A request is one job of 8 blocks
from or into shared memory, JOBS of them at a time; no block is moved twice. The figures are
written to OUTPUT as JSON, times in microseconds.
"""
import hashlib
import itertools
import json
import mmap
import os
import random
import resource
import sys
import threading
import time
from dataclasses import dataclass, field

import numpy as np
from vllm.v1.kv_offload import config
from vllm.v1.kv_offload.base import (
    LookupResult, OffloadingSpec, ReqContext, ScheduleEndContext, make_offload_key,
)
from vllm.v1.kv_offload.tiering.base import TransferJob
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

BLOCKS = 8  # of a request
MARK = 8  # bytes at the start and the end of a block, by which it is known
STEP_S = 0.0002  # in which the model runs, and the scheduler's thread sleeps
WAKE_S = 0.001  # a thread that measures how late it runs sleeps so long


class Spec(OffloadingSpec):
    """The facts that a tier is told of the engine; its other parts are not played."""

    def get_manager(self):
        raise NotImplementedError

    def get_worker(self, kv_caches):
        raise NotImplementedError


def spec(block):
    group = config.OffloadingGroupConfig(tokens_per_block=16, layer_names=("all",), group_id=0)
    return Spec(config.OffloadingConfig(
        groups=(group,),
        worker_kv_bytes_per_block=block,
        enable_kv_cache_events=False,
        extra_config={},
        engine_id="bench",
        model=config.OffloadingModelConfig(name="bench", dtype="float16"),
        cache=config.OffloadingCacheConfig(tokens_per_hash=16, blocks_per_chunk=1),
        parallel=config.OffloadingParallelConfig(
            rank=0, world_size=1, tp_size=1, pp_size=1, pcp_size=1, dcp_size=1,
            data_parallel_index=0, data_parallel_size=1, data_parallel_rank_local=None,
            is_parallelism_agnostic=True,
        ),
    ))


@dataclass(eq=False)
class Request:
    is_load: bool
    marks: list  # the first and last bytes of each block
    keys: list
    context: ReqContext
    lane: int = 0  # which part of the memory it has
    begun: float = 0.0


@dataclass
class Times:
    calls: list = field(default_factory=list)  # on the scheduler's thread, in seconds
    submits: list = field(default_factory=list)
    cpu: float = 0.0  # of the calls, in seconds
    jobs: list = field(default_factory=list)
    loaded: int = 0  # blocks
    stored: int = 0


class Scheduler:
    """Calls the tier as vLLM's scheduler does in each of its steps."""

    def __init__(self, tier_config, block, lanes):
        self.block = block
        self.memory = memoryview(mmap.mmap(-1, lanes * BLOCKS * block))
        for start in range(0, len(self.memory), block):  # pages that are there already
            self.memory[start:start + block] = os.urandom(block)
        self.lanes = list(range(lanes))
        view = self.memory.cast("b", (lanes * BLOCKS, block))
        self.tier = SecondaryTierFactory.create_secondary_tier(tier_config, view, spec(block))
        self.ids = itertools.count()
        self.times = Times()

    def call(self, method, *arguments):
        """Calls the tier, and notes the time that the scheduler's thread is held up."""
        used, begun = time.thread_time(), time.perf_counter()
        result = method(*arguments)
        self.times.calls.append(time.perf_counter() - begun)
        self.times.cpu += time.thread_time() - used
        return result

    def is_found(self, request):
        """Looks every block up, as each step does until the tier knows."""
        results = [self.call(self.tier.lookup, key, request.context) for key in request.keys]
        if LookupResult.MISS in results:
            raise RuntimeError("a block that was stored is not found")
        return all(result is LookupResult.HIT for result in results)

    def marked(self, request):
        """Yields the place in memory of each mark of a request's blocks, and the mark."""
        for index, mark in enumerate(request.marks, request.lane * BLOCKS):
            for start in (index * self.block, (index + 1) * self.block - MARK):
                yield slice(start, start + MARK), mark

    def submit(self, request):
        for place, mark in self.marked(request):
            self.memory[place] = bytes(MARK) if request.is_load else mark
        slots = np.arange(request.lane * BLOCKS, (request.lane + 1) * BLOCKS)
        job = TransferJob(
            job_id=next(self.ids), keys=request.keys, chunk_ids=slots,
            is_promotion=request.is_load, req_context=request.context,
        )
        request.begun = time.perf_counter()
        self.call(self.tier.submit_load if request.is_load else self.tier.submit_store, job)
        self.times.submits.append(self.times.calls[-1])
        return job.job_id

    def finish(self, request, result):
        self.times.jobs.append(time.perf_counter() - request.begun)
        if not result.success:
            raise RuntimeError(f"a job failed: {result}")
        if request.is_load:
            if any(self.memory[place] != mark for place, mark in self.marked(request)):
                raise RuntimeError("a load brought wrong bytes")
            self.times.loaded += BLOCKS
        else:
            self.times.stored += BLOCKS
        self.call(self.tier.on_request_finished, request.context)
        self.lanes.append(request.lane)

    def run(self, requests, deadline=float("inf")):
        """Serves requests, one in each lane, and begins none behind the deadline."""
        requests, waiting, flying = iter(requests), [], {}
        while True:
            fresh = []
            while self.lanes and time.perf_counter() < deadline:
                request = next(requests, None)
                if request is None:
                    break
                request.lane = self.lanes.pop()
                self.call(self.tier.on_new_request, request.context)
                fresh.append(request)
            waiting += fresh
            if not waiting and not flying:
                return
            known = [not it.is_load or self.is_found(it) for it in waiting]
            ready = list(itertools.compress(waiting, known))
            waiting = [it for it, is_known in zip(waiting, known) if not is_known]
            for result in self.call(lambda: list(self.tier.get_finished_jobs())):
                self.finish(flying.pop(result.job_id), result)
            for request in ready:
                flying[self.submit(request)] = request
            names = [it.context.req_id for it in fresh]
            self.call(self.tier.on_schedule_end, ScheduleEndContext(names, ()))
            time.sleep(STEP_S)


def requests(name, is_load, blocks):
    """Makes the requests for the blocks of that name, BLOCKS each."""
    made = []
    for first in range(0, blocks - BLOCKS + 1, BLOCKS):
        hashes = [hashlib.sha256(f"{name} {it}".encode()) for it in range(first, first + BLOCKS)]
        digests = [it.digest() for it in hashes]
        made.append(Request(
            is_load,
            [it[:MARK] for it in digests],
            [make_offload_key(it, 0) for it in digests],
            ReqContext(f"{name} {first} {is_load}"),
        ))
    return made


def measured(direction, blocks, seed):
    """Makes the requests of a run; those of a round are the same for all tiers."""
    loads, stores = requests("kept", True, blocks), requests(f"round {seed}", False, blocks)
    if direction == "mixed":
        half = len(loads) // 2
        both = zip(loads[:half], stores[:half], strict=True)
        return [request for pair in both for request in pair]
    if direction == "store":
        return stores
    random.Random(seed).shuffle(loads)
    return loads


def watch(late, cpu, is_over):
    """Sleeps, and notes how much later than asked it runs: another thread has the lock."""
    while not is_over.is_set():
        begun = time.perf_counter()
        time.sleep(WAKE_S)
        late.append(time.perf_counter() - begun - WAKE_S)
    cpu.append(time.thread_time())


def percentile(times, part):
    times = sorted(times)
    return 1e6 * times[min(len(times) - 1, int(len(times) * part))]


def cpu_us():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return 1e6 * (used.ru_utime + used.ru_stime)


def measure(scheduler, work, block, seconds):
    late, watching, is_over = [], [], threading.Event()
    thread = threading.Thread(target=watch, args=(late, watching, is_over))
    thread.start()
    before, playing, begun = cpu_us(), time.thread_time(), time.perf_counter()
    try:
        scheduler.run(work, begun + seconds)
    finally:
        elapsed, used = time.perf_counter() - begun, cpu_us() - before
        playing = time.thread_time() - playing
        is_over.set()
        thread.join()
    times = scheduler.times
    drivers = 1e6 * (playing - times.cpu + sum(watching))
    blocks = times.loaded + times.stored
    return {
        "bytes_per_s": blocks * block / elapsed,
        "loaded_bytes_per_s": times.loaded * block / elapsed,
        "stored_bytes_per_s": times.stored * block / elapsed,
        "latency_us_p50": percentile(times.jobs, 0.5),
        "latency_us_p99": percentile(times.jobs, 0.99),
        "submit_us_p50": percentile(times.submits, 0.5),
        "submit_us_p999": percentile(times.submits, 0.999),
        "submit_us_max": percentile(times.submits, 1),
        "held_up_us_p50": percentile(times.calls, 0.5),
        "held_up_us_p99": percentile(times.calls, 0.99),
        "held_up_us_p999": percentile(times.calls, 0.999),
        "held_up_us_max": percentile(times.calls, 1),
        "late_us_p99": percentile(late, 0.99),
        "late_us_max": percentile(late, 1),
        "cpu_us_per_operation": used / blocks,
        "tier_cpu_us_per_operation": (used - drivers) / blocks,
    }


def main():
    tier, folder, direction, *numbers, seconds, seed, output = sys.argv[1:]
    block, jobs, size = map(int, numbers)
    scheduler = Scheduler({**json.loads(tier), "root_dir": folder}, block, jobs)
    figures, blocks = {}, size // block
    if direction == "prepare":
        scheduler.run(requests("kept", False, blocks))
    else:
        work = measured(direction, blocks, int(seed))
        figures = measure(scheduler, work, block, float(seconds))
        # Some of what was stored is read back.
        stored = [it for it in work if it.begun and not it.is_load][-jobs:]
        for request in stored:
            request.is_load, request.context = True, ReqContext(request.context.req_id + " back")
        scheduler.run(stored)
    scheduler.tier.drain_jobs()
    scheduler.tier.shutdown()
    with open(output, "w") as file:
        json.dump(figures, file)


main()
