"""A plan: which keys a replay is over and why, what it will cost, and the configuration it is for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from kfm_pipelines.datasets import Dataset
from kfm_pipelines.declarations import Tolerance
from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.operations.configuration_changes import configuration_changes
from kfm_pipelines.operations.exchanged_policies import laxer_policies
from kfm_pipelines.operations.replays.choosing import EVERY_KEY, Bounds, Where, choose_again, choose_upgrades
from kfm_pipelines.operations.replays.configuration import frozen_config
from kfm_pipelines.operations.replays.estimate import Estimate, estimate
from kfm_pipelines.operations.workshop import Workshop
from kfm_pipelines.state import kills, replays
from kfm_pipelines.state.checkpoints import closed_until
from kfm_pipelines.state.frozen import digest_of
from kfm_pipelines.state.replayable import KnownKey, known_keys, make_keys
from kfm_pipelines.state.replays import Mode, PlannedKey, PlannedReplay


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants replayed: windows that begin in [start, end), and the conditions on their keys."""

    dataset: str
    start: datetime
    end: datetime
    mode: Mode = "reproduce"
    where: Where = EVERY_KEY
    tolerance: Tolerance | None = None

    def as_document(self) -> dict[str, Any]:
        return {
            "from": self.start.isoformat(),
            "to": self.end.isoformat(),
            "where": self.where.as_list(),
            "tolerance": self.tolerance.model_dump(mode="json") if self.tolerance else None,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    id: str
    dataset: str
    mode: Mode
    keys: tuple[PlannedKey, ...]
    config: Mapping[str, Any]
    config_digest: str
    estimate: Estimate

    @property
    def chosen(self) -> list[PlannedKey]:
        return [one for one in self.keys if not one.left_out]

    @property
    def left_out(self) -> list[PlannedKey]:
        return [one for one in self.keys if one.left_out]


def make_plan(workshop: Workshop, wish: Wish, actor: str) -> Plan:
    """Plan it and keep the plan; nothing is asked of anybody. ReplayRefused when there is nothing to replay."""
    dataset = workshop.datasets[wish.dataset]
    if wish.start >= wish.end:
        raise ReplayRefused(f"nothing begins from {wish.start.isoformat()} and before {wish.end.isoformat()}")
    known = known_keys(workshop.database, wish.dataset, wish.start, wish.end)
    wanted = [one for one in known if wish.where.holds(one)]
    keys = _chosen(workshop, dataset, wish, known)
    going = {one.source or one.key for one in keys if not one.left_out}
    if not going:
        raise ReplayRefused(_nothing(wish, known, wanted, keys))
    declarations = [one.declaration for one in wanted if one.declaration and one.key in going]
    config = frozen_config(workshop, dataset, wish.mode, declarations if wish.mode == "reproduce" else ())
    plan = Plan(
        id=f"r{uuid4().hex[:8]}",
        dataset=wish.dataset,
        mode=wish.mode,
        keys=tuple(keys),
        config=config,
        config_digest=digest_of(config),
        estimate=estimate(workshop, wish.dataset, len(going)),
    )
    new = PlannedReplay(plan.id, plan.dataset, plan.mode, wish.as_document(), config, plan.config_digest)
    replays.create(workshop.database, new, keys, actor)
    return plan


def _chosen(workshop: Workshop, dataset: Dataset, wish: Wish, known: Sequence[KnownKey]) -> list[PlannedKey]:
    stopped = kills.killed(workshop.database).get(wish.dataset)
    bounds = Bounds(closed_until(workshop.database, wish.dataset), str(stopped) if stopped else None)
    if wish.mode == "reproduce":
        wanted = [one for one in known if wish.where.holds(one)]
        return _reproducible(workshop, dataset, choose_again(wanted, bounds))
    laxer = laxer_policies(workshop, dataset, [one.key for one in known])
    chosen, new = choose_upgrades(dataset, known, wish.where, replace(bounds, laxer=laxer))
    make_keys(workshop.database, wish.dataset, new)
    return chosen


def _reproducible(workshop: Workshop, dataset: Dataset, keys: Sequence[PlannedKey]) -> list[PlannedKey]:
    """Without those whose configuration has changed since: they could not come out the same."""
    changes = configuration_changes(workshop, dataset, [one.key for one in keys if not one.left_out])
    return [
        replace(one, left_out=True, why=f"cannot be reproduced: {'; '.join(changes[one.key])}")
        if changes.get(one.key)
        else one
        for one in keys
    ]


def _nothing(wish: Wish, known: Sequence[KnownKey], wanted: Sequence[KnownKey], keys: Sequence[PlannedKey]) -> str:
    when = f"from {wish.start.isoformat()} to {wish.end.isoformat()}"
    if not known:
        return f"no key of {wish.dataset} is known {when}; --register makes keys of what is in the bucket"
    if not wanted:
        return f"none of the {len(known)} keys of {wish.dataset} {when} is one that --where asks for"
    return f"none of {len(keys)} keys {when} can be replayed; the first, {keys[0].key}: {keys[0].why}"
