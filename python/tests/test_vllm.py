"""The tier in vLLM, beside vLLM's own; `vllm_own.py` runs vLLM's tests with it."""

from __future__ import annotations

import logging
import mmap
import os
import pathlib
import stat
import time
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import LIMIT

np = pytest.importorskip("numpy")
pytest.importorskip("vllm", reason="vLLM is not installed")

from nowait_vllm.tier import QUEUE_SECONDS, NowaitTier  # noqa: E402
from vllm.v1.kv_offload import base, config  # type: ignore[import-not-found]  # noqa: E402
from vllm.v1.kv_offload.tiering.base import (  # type: ignore[import-not-found]  # noqa: E402
    TransferJob,
)
from vllm.v1.kv_offload.tiering.factory import (  # type: ignore[import-not-found]  # noqa: E402
    SecondaryTierFactory,
)

SLOTS = 8
BLOCK = 128 << 10
REQUEST = base.ReqContext(req_id="request")


def spec() -> Any:
    parallel = config.OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, False)
    made = config.OffloadingConfig(
        groups=(),
        worker_kv_bytes_per_block=0,
        enable_kv_cache_events=True,
        extra_config={},
        engine_id="engine",
        model=config.OffloadingModelConfig(name="some/model", dtype="float16"),
        cache=config.OffloadingCacheConfig(tokens_per_hash=16, blocks_per_chunk=1),
        parallel=parallel,
    )
    events = base.OffloadingKVEventsConfig(True, False)
    return SimpleNamespace(config=made, blocks_per_chunk=1, kv_events_config=events)


def make(kind: dict[str, Any], root: pathlib.Path) -> tuple[Any, Any]:
    """Make a tier by its configuration, and the memory of its slots."""
    memory = np.frombuffer(mmap.mmap(-1, SLOTS * BLOCK), np.uint8).reshape(SLOTS, BLOCK)
    tier = SecondaryTierFactory.create_secondary_tier(
        kind | {"root_dir": str(root)}, memoryview(memory), spec()
    )
    return tier, memory


OURS = {"type": "NowaitTier", "module_path": "nowait_vllm.tier"}
THEIRS = {"type": "fs"}


def key(number: int) -> Any:
    return base.make_offload_key(bytes([number] * 32), 3)


def run(tier: Any, loads: bool, numbers: list[int], slots: list[int]) -> Any:
    keys, ids = [key(number) for number in numbers], np.array(slots, dtype=np.int64)
    job = TransferJob(4, keys, ids, is_promotion=loads, req_context=REQUEST)
    (tier.submit_load if loads else tier.submit_store)(job)
    tier.drain_jobs()
    [result] = tier.get_finished_jobs()
    return result


@pytest.mark.parametrize(("writer", "reader"), [(OURS, THEIRS), (THEIRS, OURS)])
def test_each_tier_reads_the_files_of_the_other(
    disk: pathlib.Path, writer: dict[str, Any], reader: dict[str, Any]
) -> None:
    tier, memory = make(writer, disk)
    memory[0], memory[1] = 11, 12
    assert run(tier, False, [1, 2], [0, 1]).success
    tier.shutdown()
    tier, memory = make(reader, disk)
    result = run(tier, True, [2, 1], [3, 4])
    assert result.success and result.transfer_bytes == 2 * BLOCK
    assert (memory[3] == 12).all() and (memory[4] == 11).all()
    tier.shutdown()


def test_files_and_folders_are_private(disk: pathlib.Path) -> None:
    root = disk / "new"
    tier, _ = make(OURS, root)
    assert run(tier, False, [1], [0]).success
    tier.shutdown()
    names = [root, *root.glob("**/*")]
    assert any(name.suffix == ".bin" for name in names)
    for name in names:
        bits = stat.S_IMODE(name.stat().st_mode)
        assert bits == (0o700 if name.is_dir() else 0o600), name


def test_a_failed_block_is_named_once(
    disk: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    tier, _ = make(OURS, disk)
    with caplog.at_level(logging.WARNING, logger="nowait_vllm.tier"):
        for _ in range(3):
            assert not run(tier, True, [9], [0]).success
    path = tier.file_mapper.get_file_name(key(9))
    assert sum(path in record.getMessage() for record in caplog.records) == 1
    tier.shutdown()


def test_jobs_are_measured(disk: pathlib.Path) -> None:
    tier, _ = make(OURS, disk)
    assert tier.get_stats() is None
    result = run(tier, False, [1, 2], [0, 1])
    assert result.transfer_bytes == 2 * BLOCK and result.transfer_time > 0
    assert list(tier.get_stats().data["data"]) == [QUEUE_SECONDS]
    assert QUEUE_SECONDS in NowaitTier.build_metric_definitions({})
    assert tier.get_stats() is None
    tier.shutdown()


def test_evictions_are_events(disk: pathlib.Path) -> None:
    capacity = {"capacity_bytes": 8 * BLOCK, "enable_kv_events": True}
    tier, _ = make(OURS | capacity, disk)
    for number in range(20):
        assert run(tier, False, [number], [0]).success
    removed: set[Any] = set()
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        # Evictions may remove folders meanwhile, which glob refuses.
        found = [name for _, _, names in os.walk(disk) for name in names if name.endswith(".bin")]
        left = {key(bytes.fromhex(name.removesuffix(".bin"))[0]) for name in found}
        removed |= {k for event in tier.take_events() if event.removed for k in event.keys}
        if removed == {key(number) for number in range(20)} - left:
            break
        time.sleep(0.01)
    else:
        pytest.fail(f"{removed} and {left}")
    assert 3 <= len(left) <= 8
    tier.shutdown()
    assert os.listdir(disk / ".nowait")
