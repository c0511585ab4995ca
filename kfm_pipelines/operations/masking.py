"""Masking a key's table by the rules in force; what leads back is kept where only reviewers look."""

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.operations.governance import Rules
from kfm_pipelines.operations.handoff import Handoff
from kfm_pipelines.operations.judging import judge_before_masking
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.stages.mask import Outcome, mask
from kfm_pipelines.stages.parquet import read_parquet, write_parquet
from kfm_pipelines.stores import Layout


def masked(workshop: Workshop, dataset: Dataset, rules: Rules, handoff: Handoff) -> Outcome:
    table = read_parquet(handoff.data, handoff.claim.key)
    if not rules.masks:
        return Outcome(table)
    judge_before_masking(workshop, dataset, handoff, table)
    outcome = mask(table, dataset, rules.policy, rules.secret)
    if outcome.crosswalk is not None:
        path = Layout(dataset.pipeline).crosswalk(handoff.claim.key, handoff.claim.epoch)
        workshop.store.write(path, write_parquet(outcome.crosswalk))
    return outcome
