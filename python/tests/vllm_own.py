"""Runs vLLM's own tests of secondary tiers with `NowaitTier` in the place of its file system tier.

    python python/tests/vllm_own.py CHECKOUT [ARGUMENTS OF PYTEST]

CHECKOUT holds the sources of the installed version of vLLM (its source package has the tests, too).
The tests need vLLM with its dependencies, pytest and nowait; no GPU.
"""

from __future__ import annotations

import pathlib
import sys

import pytest

FOLDER = "tests/v1/kv_offload/tiering"

# Tests of other tiers, some of which need packages or devices of their own, are left out.
FILES = [
    "test_fs_tier.py",
    "test_async_lookup.py",
    "test_backpressure.py",
    "test_factory.py",
    "test_metrics.py",
    "test_tier_poll_thread.py",
    "test_tiering_offloading.py",
]

# Tests that look into vLLM's own tier, or replace functions inside it.
INSIDE = {
    "test_shutdown_discards_pending_tasks": "looks into the thread pool",
    "test_store_load_roundtrip_without_o_direct": "replaces the probe for direct I/O",
    "test_mixed_job_results_emit_event_only_for_successful_job": "replaces the store function",
    "test_partially_failed_store_emits_no_event": "replaces the store function",
}


class Replacement:
    """The plugin of pytest."""

    def pytest_configure(self) -> None:
        from nowait_vllm.tier import NowaitTier
        from vllm.v1.kv_offload.tiering.fs import manager  # type: ignore[import-not-found]

        manager.FileSystemTierManager = NowaitTier

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            reason = INSIDE.get(getattr(item, "originalname", item.name))
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=f"{reason} of vLLM's own tier"))


def main(checkout: pathlib.Path, *words: str) -> int:
    files = [str(checkout / FOLDER / name) for name in FILES]
    # The checkout's conftest.py serves tests that run models.
    options = ["--noconftest", "-p", "no:cacheprovider", "-q", "-rs", f"--rootdir={checkout}"]
    return pytest.main([*options, *words, *files], plugins=[Replacement()])


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), *sys.argv[2:]))
