"""How long it takes to create a run over 200 keys as the daemon does, with a connection for every statement."""

import time
from pathlib import Path
from statistics import median

import dagster as dg

from bench.measurement import Measurement
from bench.stack import emit_streamflow, own_stack
from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.dispatch.dispatch import range_tags
from kfm_pipelines.dispatch.partitions import register_partitions
from kfm_pipelines.orchestration.names import group_of

KEYS = 200
ROUNDS = 5
ALLOWED_SECONDS = 1.0


def creation_of_a_run(folder: Path) -> Measurement:
    with own_stack(folder) as services, dg.DagsterInstance.get() as instance:
        keys = emit_streamflow(services, 0, KEYS)
        dataset = services.datasets["usgs/streamflow"]
        register_partitions(instance, dataset, keys)
        job = build_definitions(services.settings.resources).resolve_job_def(group_of(dataset))
        seconds = [_seconds(instance, job, keys) for _ in range(ROUNDS)][1:]
    return Measurement("creation_of_a_run_over_200_keys", median(seconds), "s", ALLOWED_SECONDS)


def _seconds(instance: dg.DagsterInstance, job: dg.JobDefinition, keys: list[str]) -> float:
    began = time.monotonic()
    instance.create_run_for_job(job, tags=range_tags(keys))
    return time.monotonic() - began
