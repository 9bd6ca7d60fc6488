"""A tier for vLLM's offloading of KV caches: blocks in files, no thread for each transfer. ::

    {"type": "NowaitTier", "module_path": "nowait_vllm.tier", "root_dir": "/var/cache/kv"}

is its entry in ``secondary_tiers`` of ``kv_connector_extra_config``. The files are those of vLLM's
own file system tier, so that a deployment can switch back and forth. This module needs vLLM.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import logging
import os
from collections.abc import Callable, Collection, Iterable
from importlib import metadata
from typing import Any, ClassVar, NoReturn

from ._blocks import BlockFolder

FITS = "0.33"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _refuse(difference: str, cause: Exception | None = None) -> NoReturn:
    """Raise the error about a version of vLLM with another interface."""
    own, theirs = _version("nowait-vllm") or "(from sources)", _version("vllm")
    raise ImportError(
        f"nowait-vllm {own} has a tier for vllm {FITS}, which does not fit vllm {theirs}: "
        f"{difference}"
    ) from cause


if _version("vllm") is None:
    raise ImportError(f"nowait_vllm needs vllm {FITS}: run pip install 'vllm=={FITS}.*'")

try:
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading import (  # type: ignore
        metrics as connector_metrics,
    )
    from vllm.v1.kv_offload.base import (  # type: ignore[import-not-found]
        Locality,
        LookupResult,
        Medium,
        OffloadingEvent,
        OffloadingHistogramMetadata,
        OffloadKey,
        ReqContext,
        RequestOffloadingContext,
        ScheduleEndContext,
        make_offload_key,
    )
    from vllm.v1.kv_offload.file_mapper import FileMapper  # type: ignore[import-not-found]
    from vllm.v1.kv_offload.tiering.async_lookup import (  # type: ignore[import-not-found]
        AsyncLookupManager,
    )
    from vllm.v1.kv_offload.tiering.base import (  # type: ignore[import-not-found]
        JobResult,
        SecondaryTierManager,
        TransferJob,
    )
except ImportError as error:
    if (error.name or "").split(".")[0] != "vllm":
        raise  # a package that vLLM itself needs
    _refuse(str(error), error)

logger = logging.getLogger(__name__)

QUEUE_SECONDS = "vllm:kv_offload_nowait_queue_seconds"
IN_FLIGHT_BYTES = 64 << 20
# Most log lines that the tier remembers, to log each line only once.
TOLD_MAX = 4096


class _Lookups(AsyncLookupManager):  # type: ignore[misc]
    """Looks blocks up on the thread of vLLM's lookup manager."""

    def __init__(self, blocks: BlockFolder, tier_type: str) -> None:
        self._blocks = blocks
        super().__init__(tier_type=tier_type)

    def batch_lookup(self, keys: list[OffloadKey], req_context: ReqContext) -> Iterable[bool]:
        return self._blocks.contains(keys)


class NowaitTier(SecondaryTierManager):  # type: ignore[misc]
    """A secondary tier of vLLM's `TieringOffloadingSpec` that keeps blocks in local files.

    ``root_dir`` is the folder of the files, as in vLLM's own tier.

    ``capacity_bytes`` bounds the blocks in that folder: those that were not used for the longest
    time are evicted. Give all processes that share the folder the same number. Without it, the
    folder grows until its file system is full, and then stores fail.

    ``in_flight_bytes`` bounds the bytes that are read and written at a time.

    ``enable_kv_events`` and ``locality`` work as in vLLM's own tier. ``n_read_threads`` and
    ``n_write_threads`` have no effect: a configuration of that tier remains valid.
    """

    medium: ClassVar[Medium] = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        root_dir: str,
        capacity_bytes: int | None = None,
        in_flight_bytes: int = IN_FLIGHT_BYTES,
        n_read_threads: int | None = None,
        n_write_threads: int | None = None,
        enable_kv_events: bool = False,
        locality: str | None = None,
        backpressure_detector: Any = None,
    ) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality = Locality(locality) if locality is not None else None
        self.events: list[OffloadingEvent] | None = None
        if enable_kv_events and offloading_spec.kv_events_config.enable_kv_cache_events:
            self.events = []
        elif enable_kv_events:
            logger.warning(
                "enable_kv_events of the tier %s has no effect: KV cache events are disabled "
                "(set enable_kv_cache_events)",
                tier_type,
            )
        self.file_mapper = FileMapper.from_offloading_spec(
            root_dir=root_dir,
            offloading_spec=offloading_spec,
            blocks_per_file=offloading_spec.blocks_per_chunk,
            parallel_agnostic=True,
        )
        _write_config(root_dir, self.file_mapper)
        self._evicts = capacity_bytes is not None
        sample = make_offload_key(bytes(range(32)), 7)
        name = self.file_mapper.get_file_name(sample)
        self._blocks = BlockFolder(
            primary_kv_view,
            root_dir,
            os.path.dirname(os.path.dirname(os.path.dirname(name))),
            self.block_size_bytes,
            capacity_bytes,
            in_flight_bytes,
            self.events is not None,
        )
        if self._blocks.path(sample) != name:
            self._blocks.close()
            _refuse(f"it names the files of blocks differently: {name}")
        if not self._blocks.is_direct:
            logger.warning(
                "the tier %s uses the page cache: the file system of %s has no direct I/O, or "
                "blocks of %d bytes are not aligned for it",
                tier_type,
                root_dir,
                self.block_size_bytes,
            )
        self._lookup_manager = _Lookups(self._blocks, tier_type)
        self._store_job_keys: dict[int, list[OffloadKey]] = {}
        self._load_job_keys: dict[int, list[OffloadKey]] = {}
        self._told: set[str] = set()
        self._stats = connector_metrics.OffloadingConnectorStats()

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        found = self._lookup_manager.lookup(key, req_context)
        if found is None:
            return LookupResult.RETRY
        return LookupResult.HIT if found else LookupResult.MISS

    def submit_store(self, job_metadata: TransferJob) -> None:
        keys = list(job_metadata.keys)
        if self.events is not None:
            self._store_job_keys[job_metadata.job_id] = keys
        self._blocks.submit(job_metadata.job_id, False, keys, job_metadata.chunk_ids.tolist())

    def submit_load(self, job_metadata: TransferJob) -> None:
        keys = list(job_metadata.keys)
        self._load_job_keys[job_metadata.job_id] = keys
        self._blocks.submit(job_metadata.job_id, True, keys, job_metadata.chunk_ids.tolist())

    def get_finished_jobs(self) -> Iterable[JobResult]:
        return [self._result(*job) for job in self._blocks.finished()]

    def _result(
        self,
        job_id: int,
        loads: bool,
        transferred: int,
        seconds: float,
        queued: float,
        failures: list[tuple[int, str]],
    ) -> JobResult:
        self._stats.observe_histogram(QUEUE_SECONDS, queued, ("load" if loads else "store",))
        for _, reason in failures:
            self._tell(reason)
        successful = None
        if not loads:
            keys = self._store_job_keys.pop(job_id, [])
            if keys and not failures:
                self._add_event(keys, removed=False)
        elif failures:
            # Like vLLM's own tier: only the blocks before the first failed one count as loaded,
            # because vLLM computes the request from that block on.
            keys, first = self._load_job_keys.pop(job_id), failures[0][0]
            self._lookup_manager.mark_miss(keys[first:])
            successful = tuple(keys[:first]) or None
        else:
            del self._load_job_keys[job_id]
        return JobResult(
            job_id=job_id,
            success=not failures,
            successful_keys=successful,
            transfer_time=seconds,
            transfer_bytes=transferred,
        )

    def _tell(self, reason: str) -> None:
        if reason in self._told:
            return
        if len(self._told) == TOLD_MAX:
            self._told.clear()
        self._told.add(reason)
        logger.warning("%s: %s", self.tier_type, reason)

    def _add_event(self, keys: list[OffloadKey], removed: bool) -> None:
        if self.events is not None:
            self.events.append(
                OffloadingEvent(
                    keys=keys, medium=self.medium, removed=removed, locality=self.locality
                )
            )

    def take_events(self) -> Iterable[OffloadingEvent]:
        if self.events is None:
            return
        if evicted := self._blocks.evicted():
            self._add_event([OffloadKey(key) for key in evicted], removed=True)
        events, self.events = self.events, []
        yield from events

    def touch(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        if self._evicts:
            self._blocks.touch(keys)

    def on_request_finished(self, req_context: ReqContext) -> None:
        self._lookup_manager.cleanup(req_context.req_id)

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        self._lookup_manager.flush()

    def drain_jobs(self) -> None:
        self._blocks.wait_idle()

    def shutdown(self) -> None:
        self._lookup_manager.shutdown()
        self._blocks.close()

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, Any]:
        return {
            QUEUE_SECONDS: OffloadingHistogramMetadata(
                documentation="Histogram of the time that a job of the nowait tier waits before "
                "its first block starts, in seconds.",
                labelnames=("direction",),
                buckets=(0.0001, 0.001, 0.01, 0.1, 1, 10),
            )
        }

    def get_stats(self) -> Any:
        if self._stats.is_empty():
            return None
        stats, self._stats = self._stats, connector_metrics.OffloadingConnectorStats()
        return stats


def _write_config(root_dir: str, mapper: FileMapper) -> None:
    """Write the file that names the fields of the folder's hash, for the user alone."""
    path = mapper.get_config_file_path()
    for folder in (root_dir, os.path.dirname(path)):
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def private(name: str, flags: int) -> int:
        return os.open(name, flags, 0o600)

    with contextlib.suppress(FileExistsError), open(path, "x", opener=private) as file:
        json.dump(mapper.get_run_config(), file, indent=2, sort_keys=True)


def _lacking() -> str | None:
    """Return the first difference between the installed interface and the one used here."""

    def arguments(function: Callable[..., Any]) -> set[str]:
        return set(inspect.signature(function).parameters)

    def fields(described: Any) -> set[str]:
        return {field.name for field in dataclasses.fields(described)}

    job = {"job_id", "keys", "chunk_ids"}
    mapping = {"root_dir", "offloading_spec", "blocks_per_file", "parallel_agnostic"}
    tier = {"offloading_spec", "primary_kv_view", "tier_type", "backpressure_detector"}
    answers = {"job_id", "success", "successful_keys", "transfer_time", "transfer_bytes"}
    needed = [
        ("SecondaryTierManager", tier, arguments(SecondaryTierManager.__init__)),
        ("TransferJob", job, fields(TransferJob)),
        ("JobResult", answers, fields(JobResult)),
        ("FileMapper", mapping, arguments(FileMapper.from_offloading_spec)),
        ("AsyncLookupManager", {"flush", "cleanup", "mark_miss"}, set(dir(AsyncLookupManager))),
    ]
    for name, used, known in needed:
        if missing := sorted(used - known):
            return f"{name} has no {', '.join(missing)}"
    if unknown := sorted(NowaitTier.__abstractmethods__):
        return f"SecondaryTierManager also needs {', '.join(unknown)}"
    return None


if (difference := _lacking()) is not None:
    _refuse(difference)
