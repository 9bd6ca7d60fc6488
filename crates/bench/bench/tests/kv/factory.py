"""A tier of one file for each block, whose jobs end in the step after their submission."""
import os

from vllm.v1.kv_offload.base import LookupResult
from vllm.v1.kv_offload.tiering.base import JobResult

SKEW = 0  # by so much each load misses its place


class Tier:
    def __init__(self, view, folder):
        self.memory, self.block, self.folder = view.cast("B"), view.strides[0], folder
        self.ended, self.asked = [], set()

    def path(self, key):
        return os.path.join(self.folder, key.hex())

    def on_new_request(self, request):
        pass

    def on_request_finished(self, request):
        pass

    def lookup(self, key, request):
        if key not in self.asked:
            self.asked.add(key)
            return LookupResult.RETRY
        return LookupResult.HIT if os.path.exists(self.path(key)) else LookupResult.MISS

    def submit_store(self, job):
        for key, slot in zip(job.keys, job.chunk_ids):
            with open(self.path(key), "wb") as file:
                file.write(self.memory[slot * self.block:][:self.block])
        self.ended.append(JobResult(job.job_id, True))

    def submit_load(self, job):
        for key, slot in zip(job.keys, job.chunk_ids):
            with open(self.path(key), "rb") as file:
                file.readinto(self.memory[slot * self.block + SKEW:][:self.block - SKEW])
        self.ended.append(JobResult(job.job_id, True))

    def get_finished_jobs(self):
        ended, self.ended = self.ended, []
        yield from ended

    def on_schedule_end(self, context):
        pass

    def drain_jobs(self):
        pass

    def shutdown(self):
        pass


class SecondaryTierFactory:
    @staticmethod
    def create_secondary_tier(config, view, spec):
        assert config["type"] == "fs" and spec.config.worker_kv_bytes_per_block == view.strides[0]
        return Tier(view, config["root_dir"])
