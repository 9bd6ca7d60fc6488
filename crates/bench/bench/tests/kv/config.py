"""Stand-ins for vLLM's normalized configuration: they take what they are given."""


class Config:
    def __init__(self, **fields):
        self.__dict__.update(fields)


OffloadingCacheConfig = OffloadingConfig = OffloadingGroupConfig = Config
OffloadingModelConfig = OffloadingParallelConfig = Config
