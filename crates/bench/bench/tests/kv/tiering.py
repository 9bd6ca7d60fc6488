"""Stand-ins for jobs and their results."""
from collections import namedtuple

TransferJob = namedtuple("TransferJob", "job_id keys chunk_ids is_promotion req_context")
JobResult = namedtuple("JobResult", "job_id success")
