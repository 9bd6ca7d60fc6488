"""Stand-ins for what vLLM's tiers and their callers share."""
from collections import namedtuple
from enum import Enum, auto

ScheduleEndContext = namedtuple("ScheduleEndContext", "new_req_ids preempted_req_ids")
ReqContext = namedtuple("ReqContext", "req_id")


class LookupResult(Enum):
    MISS = auto()
    HIT = auto()
    RETRY = auto()


class OffloadingSpec:
    def __init__(self, config):
        self.config = config


def make_offload_key(block_hash, group):
    return block_hash + group.to_bytes(4, "big")
