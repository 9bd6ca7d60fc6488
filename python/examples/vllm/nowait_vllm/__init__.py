"""A tier for vLLM's offloading of KV caches: ``nowait_vllm.tier``."""
