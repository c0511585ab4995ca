"""Plans a replay: its keys and why, the estimated cost, and the configuration it is approved for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from kfm_pipelines.care.governance import governance_of, policy_version
from kfm_pipelines.catalog.trust.environment import environment_facts
from kfm_pipelines.declarations import Tolerance
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.energy import estimate as energy_estimate
from kfm_pipelines.errors import ReplayRefused
from kfm_pipelines.gates.expectations import suite_digest
from kfm_pipelines.operations.replay.choose import KeyFilter, ReplayLimits, choose_upgrades, plan_reproduction
from kfm_pipelines.operations.replay.eligible import KnownKey, create_keys, known_keys, read_average_usage
from kfm_pipelines.services import Services
from kfm_pipelines.stages.compute.transforms import source_digest
from kfm_pipelines.stages.config.changes import configuration_changes, laxer_policies
from kfm_pipelines.state import kill_switch, replays
from kfm_pipelines.state.audit import digest_of
from kfm_pipelines.state.replays import Mode, PlannedKey, PlannedReplay, Replay
from kfm_pipelines.watermarks.queries import read_watermark


def snapshot_config(services: Services, dataset: Dataset, mode: Mode, declarations: Iterable[str]) -> dict[str, Any]:
    """Returns the configuration of a plan. `declarations` are the digests behind the revisions to reproduce."""
    governance = governance_of(services, dataset)
    policy, suites = governance.policy, (dataset.quality.suite, dataset.quality.deep_suite)
    secret = policy_version(policy, governance.secret).key_check
    software = environment_facts()
    return {
        "mode": mode,
        "declaration": digest_of(dataset.model_dump(mode="json")),
        "declarations": sorted(set(declarations)),
        "transform": source_digest(dataset.transform),
        "suites": {name: suite_digest(services.settings.resources, name) for name in suites if name},
        "policy": {"name": policy.name, "digest": policy.digest, "secret": secret},
        "exemptions": sorted(one.id for one in governance.exemptions),
        "environment": {
            name: getattr(software, name) for name in ("python", "implementation", "kfm", "commit", "sbom")
        },
    }


def config_changes_since_plan(services: Services, replay: Replay) -> list[str]:
    dataset, planned = services.datasets[replay.dataset], replay.config
    now = snapshot_config(services, dataset, replay.mode, planned["declarations"])
    return sorted(name for name in {*planned, *now} if planned.get(name) != now.get(name))


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The estimated cost of `keys` keys; None is unknown."""

    keys: int
    measured_keys: int
    cpu_seconds: float | None
    wall_seconds: float | None
    bytes: float | None
    energy_ws: float | None
    carbon_grams: float | None
    cost_usd: float | None
    sources: tuple[str, ...]

    def as_document(self) -> dict[str, Any]:
        rounded = {
            name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in asdict(self).items()
        }
        return {**rounded, "bytes": None if self.bytes is None else round(self.bytes), "sources": list(self.sources)}


def estimate_cost(services: Services, dataset: str, keys: int) -> CostEstimate:
    coefficients = energy_estimate.load_coefficients(services.settings.resources)
    past = read_average_usage(services.database, dataset)
    energy = energy_estimate.estimate(coefficients, past.usage)
    return CostEstimate(
        keys=keys,
        measured_keys=past.keys,
        cpu_seconds=_scale(past.usage.cpu_seconds, keys),
        wall_seconds=_scale(past.wall_seconds, keys),
        bytes=_scale(past.bytes, keys),
        energy_ws=_scale(energy.watt_seconds, keys),
        carbon_grams=_scale(energy.carbon_grams, keys),
        cost_usd=_scale(energy.cost_usd, keys),
        sources=coefficients.sources,
    )


def _scale(average: float | None, keys: int) -> float | None:
    return None if average is None else average * keys


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """The windows that begin in [start, end), and conditions on their keys."""

    dataset: str
    start: datetime
    end: datetime
    mode: Mode = "reproduce"
    key_filter: KeyFilter = field(default_factory=KeyFilter)
    tolerance: Tolerance | None = None

    def as_document(self) -> dict[str, Any]:
        return {
            "from": self.start.isoformat(),
            "to": self.end.isoformat(),
            "where": [f"{field}={value}" for field, value in self.key_filter.conditions],
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
    estimate: CostEstimate

    @property
    def chosen(self) -> list[PlannedKey]:
        return [one for one in self.keys if not one.left_out]

    @property
    def left_out(self) -> list[PlannedKey]:
        return [one for one in self.keys if one.left_out]


def make_plan(services: Services, request: ReplayRequest, actor: str) -> Plan:
    """Stores a plan without running anything. Raises ReplayRefused when there is nothing to replay."""
    dataset = services.datasets[request.dataset]
    if request.start >= request.end:
        raise ReplayRefused(f"--from {request.start.isoformat()} is not before --to {request.end.isoformat()}")
    known = known_keys(services.database, request.dataset, request.start, request.end)
    wanted = [one for one in known if request.key_filter.matches(one)]
    keys = _choose_keys(services, dataset, request, known)
    going = {one.source or one.key for one in keys if not one.left_out}
    if not going:
        raise ReplayRefused(_nothing_to_replay_note(request, known, wanted, keys))
    declarations = [one.declaration for one in wanted if one.declaration and one.key in going]
    config = snapshot_config(services, dataset, request.mode, declarations if request.mode == "reproduce" else ())
    plan = Plan(
        id=f"r{uuid4().hex[:8]}",
        dataset=request.dataset,
        mode=request.mode,
        keys=tuple(keys),
        config=config,
        config_digest=digest_of(config),
        estimate=estimate_cost(services, request.dataset, len(going)),
    )
    new = PlannedReplay(plan.id, plan.dataset, plan.mode, request.as_document(), config, plan.config_digest)
    replays.create(services.database, new, keys, actor)
    return plan


def _choose_keys(
    services: Services, dataset: Dataset, request: ReplayRequest, known: Sequence[KnownKey]
) -> list[PlannedKey]:
    stopped = kill_switch.killed_datasets(services.database).get(request.dataset)
    bounds = ReplayLimits(read_watermark(services.database, request.dataset), str(stopped) if stopped else None)
    if request.mode == "reproduce":
        planned = [plan_reproduction(one, bounds) for one in known if request.key_filter.matches(one)]
        return _exclude_changed(services, dataset, planned)
    laxer = laxer_policies(services, dataset, [one.key for one in known])
    chosen, new = choose_upgrades(dataset, known, request.key_filter, replace(bounds, laxer=laxer))
    create_keys(services.database, request.dataset, new)
    return chosen


def _exclude_changed(services: Services, dataset: Dataset, keys: Sequence[PlannedKey]) -> list[PlannedKey]:
    """Leaves out keys whose configuration has changed, because they would not come out the same."""
    changes = configuration_changes(services, dataset, [one.key for one in keys if not one.left_out])
    return [
        replace(one, left_out=True, why=f"cannot be reproduced: {'; '.join(changes[one.key])}")
        if changes.get(one.key)
        else one
        for one in keys
    ]


def _nothing_to_replay_note(
    request: ReplayRequest, known: Sequence[KnownKey], matching: Sequence[KnownKey], keys: Sequence[PlannedKey]
) -> str:
    when = f"from {request.start.isoformat()} to {request.end.isoformat()}"
    if not known:
        return f"no key of {request.dataset} is known {when}; --register creates keys from the bucket"
    if not matching:
        return f"none of the {len(known)} keys of {request.dataset} {when} matches --where"
    return f"none of {len(keys)} keys {when} can be replayed; the first, {keys[0].key}: {keys[0].why}"
