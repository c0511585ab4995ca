"""Runs a declaration on local files, with the stages and gates of a real run, and shows what would be published.

Nothing is recorded and nothing leaves the machine: no queue, no database, no store.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfm_pipelines.care.footprints import footprints_of
from kfm_pipelines.care.governance import Governance, KeyRules, Oversight, authority_of, load_authorities
from kfm_pipelines.care.policies import Policy, load_policy, refuse_if_mismatched, refuse_unless_current
from kfm_pipelines.care.secrets import keyed_digest, read_secret
from kfm_pipelines.catalog.documents import sha256
from kfm_pipelines.catalog.facts import DocumentFacts, InputFacts, ReleaseFacts, StorageFacts
from kfm_pipelines.catalog.prov.document import release_provenance
from kfm_pipelines.catalog.stac.item import item_document
from kfm_pipelines.catalog.trust.environment import environment_facts
from kfm_pipelines.data_files import TABLE_ALONE, Attachments
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.declarations.identity import BBox, union
from kfm_pipelines.errors import KfmError, PolicyRefused, SettingsInvalid
from kfm_pipelines.events import Window, key_of
from kfm_pipelines.gates import GATES, Finding, TableSubject, Verdict, judge_schema
from kfm_pipelines.gates.quality.table import RULES_BEFORE_MASKING
from kfm_pipelines.gates.verdict import judge
from kfm_pipelines.operations.datasets.trial_window import window_of_objects
from kfm_pipelines.parquet.parquet import read_parquet, write_parquet, write_published
from kfm_pipelines.services import Services
from kfm_pipelines.settings import CARE_KEY_PREFIX, load_settings
from kfm_pipelines.stages.compute.process import drop_rows_outside_window, process
from kfm_pipelines.stages.compute.result import Computed, SourceObject
from kfm_pipelines.stages.compute.split import refuse_rows_of_no_member
from kfm_pipelines.stages.config.key_config import KeyConfig
from kfm_pipelines.stages.mask import MaskResult, mask
from kfm_pipelines.stages.publish.stage import bounding_box, care_facts
from kfm_pipelines.stages.raster_mask import mask_pixels
from kfm_pipelines.stages.validate.table_gates import table_verdicts
from kfm_pipelines.stores import Layout

if TYPE_CHECKING:
    import pyarrow as pa

_TRIAL_SECRET = b"of a trial: what is masked with it is not what would be published"
NO_EVENT = "0" * 64


@dataclass(frozen=True, slots=True)
class Trial:
    """What would be published, and everything that speaks against it. `table` is None where the policy refuses."""

    dataset: Dataset
    policy: Policy
    key: str
    window: Window
    objects: int
    table: "pa.Table | None" = field(default=None, repr=False)
    data: bytes = field(default=b"", repr=False)
    bbox: BBox | None = None
    attachments: Attachments = TABLE_ALONE
    left_out: Mapping[str, int] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    measures: Mapping[str, Any] = field(default_factory=dict)
    before_masking: tuple[Finding, ...] = ()
    item: bytes = b""
    refusals: tuple[str, ...] = ()

    @property
    def is_green(self) -> bool:
        return not self.refusals and all(verdict.passed for verdict in self.verdicts)


def run_trial(
    resources: Path, dataset: Dataset, files: Sequence[Path], today: date, environ: Mapping[str, str]
) -> Trial:
    """Takes all files as the objects of one key. `environ` may have the secrets of policies. Raises KfmError if the
    files cannot be read at all."""
    if dataset.processor == "scene":
        raise SettingsInvalid(
            f"{dataset.dataset} describes scenes, which stay in folders of their provider and cannot be tried on local "
            "files: check and add it, then look at the first scene that is announced with kfm status"
        )
    if dataset.input.upstream:
        raise SettingsInvalid(
            f"{dataset.dataset} takes no files: it follows from what is published of {dataset.input.location}"
        )
    for path in files:
        if path.is_dir():
            raise SettingsInvalid(f"{path} is a folder; name the files in it that are the objects of one key")
    services = _offline_services(resources, environ, today)
    config = KeyConfig(services, dataset)
    policy = load_policy(resources, dataset.policy)
    objects = [SourceObject(_uri(dataset, path), path.read_bytes()) for path in sorted(files)]
    computed = process(dataset, objects, config.load_area)
    refuse_rows_of_no_member(dataset, computed.table, config.load_area)
    window = window_of_objects(dataset, files, computed.table)
    computed = drop_rows_outside_window(dataset, computed, window)
    trial = Trial(
        dataset=dataset,
        policy=policy,
        key=str(key_of(dataset, window)),
        window=window,
        objects=len(objects),
        left_out=computed.left_out,
        refusals=tuple(_policy_refusals(policy, dataset, today)),
    )
    return _judge(services, config, _mask(services, config, trial, computed), objects)


def _offline_services(resources: Path, environ: Mapping[str, str], today: date) -> Services:
    """Services of which only the files are used; the address of the database is never opened."""
    secrets = {name: value for name, value in environ.items() if name.startswith((CARE_KEY_PREFIX, "KFM_FOOTPRINTS"))}
    offline = {"KFM_POSTGRES_URL": "postgresql://nowhere", "KFM_TELEMETRY": "off", "KFM_RESOURCES": str(resources)}
    return Services(load_settings({**secrets, **offline}), today=lambda: today)


def _uri(dataset: Dataset, path: Path) -> str:
    return f"s3://{dataset.input.bucket}/{dataset.input.prefix}{path.name}"


def _policy_refusals(policy: Policy, dataset: Dataset, today: date) -> list[str]:
    found = []
    for refuse in (partial(refuse_unless_current, policy, today), partial(refuse_if_mismatched, policy, dataset)):
        try:
            refuse()
        except PolicyRefused as error:
            found.append(str(error))
    return found


def _mask(services: Services, config: KeyConfig, trial: Trial, computed: Computed) -> Trial:
    """Like the stage: a table that is not as declared is refused before it is masked."""
    dataset, policy = trial.dataset, trial.policy
    has_boxes = dataset.processor == "vector"
    if not policy.masks:
        data = write_published(computed.table, dataset.table, boxes=has_boxes)
        return replace(trial, table=read_parquet(data, trial.key), data=data, attachments=computed.attachments)
    try:
        rules = _rules(services, policy)
        if computed.attachments:
            made, measures = mask_pixels(computed.attachments, dataset, rules)
            masked = MaskResult(made.table, measures=measures, attachments=made.attachments)
        else:
            fit = _judge_fitness(config, trial, computed.table)
            if not fit.passed:
                return replace(trial, verdicts=(fit,))
            masked = replace(mask(computed.table, dataset, policy, rules.secret), findings=fit.findings)
    except PolicyRefused as error:
        return replace(trial, refusals=(*trial.refusals, str(error)))
    data = write_published(masked.table, rules.published_table(dataset), boxes=has_boxes)
    return replace(
        trial,
        table=read_parquet(data, trial.key),
        data=data,
        measures=masked.measures,
        attachments=masked.attachments,
        before_masking=masked.findings,
    )


def _judge_fitness(config: KeyConfig, trial: Trial, table: "pa.Table") -> Verdict:
    dataset, data = trial.dataset, write_parquet(table)
    area = config.area_to_judge(dataset.table)
    subject = TableSubject(dataset, dataset.table, table, data, sha256(data), _bounds(trial.window), area=area)
    schema = judge_schema(subject)
    return judge("schema", RULES_BEFORE_MASKING, subject) if schema.passed else schema


def _judge(services: Services, config: KeyConfig, trial: Trial, objects: Sequence[SourceObject]) -> Trial:
    if trial.table is None:
        return trial
    rules = _rules(services, trial.policy)
    published = rules.published_table(trial.dataset)
    subject = TableSubject(
        dataset=trial.dataset,
        published=published,
        table=trial.table,
        data=trial.data,
        content_hash=sha256(trial.data),
        window=_bounds(trial.window),
        may_sample=trial.policy.is_open and trial.dataset.review == "none",
        attachments=trial.attachments,
        area=config.area_to_judge(published),
        left_out=trial.left_out,
        found_before_masking=trial.before_masking,
    )
    verdicts = tuple(verdict for verdict, _ in table_verdicts(services, subject))
    if not all(verdict.passed for verdict in verdicts):
        return replace(trial, verdicts=verdicts)
    boxes = [bounding_box(trial.table, published), *(one.bbox for one in trial.attachments.files)]
    judged = replace(trial, verdicts=verdicts, bbox=union(boxes))
    if not trial.policy.is_decided:
        return judged
    return replace(judged, item=_item(services, judged, rules, objects))


def _item(services: Services, trial: Trial, rules: KeyRules, objects: Sequence[SourceObject]) -> bytes:
    """Builds the Item as a release would; digests of inputs are keyed where they are masked."""
    dataset, policy = trial.dataset, trial.policy
    authority = authority_of(policy, load_authorities(services.settings.resources))
    governance = Governance(Oversight(services, dataset, policy, authority), rules.secret, ())
    digests = {one.asset_uri: sha256(one.data) for one in objects}
    inputs = tuple(
        InputFacts(uri, None, None, None, {"hmacSha256": keyed_digest(rules.secret, digest)}, NO_EVENT)
        if rules.secret
        else InputFacts(uri, None, None, None, {"sha256": digest}, NO_EVENT)
        for uri, digest in digests.items()
    )
    facts = ReleaseFacts(
        key=trial.key,
        window_start=trial.window.start,
        window_end=trial.window.end,
        inputs=inputs,
        inputs_hash=sha256("".join(sorted(digests.values())).encode()),
        config=dataset.digest,
        care=care_facts(governance, rules, trial.measures),
        gates=GATES,
        table=rules.published_table(dataset),
        environment=environment_facts(),
        storage=StorageFacts(),
        content_hash=sha256(trial.data),
        size=len(trial.data),
        rows=trial.table.num_rows if trial.table is not None else 0,
        bbox=trial.bbox,
        attachments=trial.attachments,
    )
    provenance = release_provenance(dataset, facts)
    layout = Layout(dataset.pipeline)
    beside = {
        one.name: _described(layout.data_file(sha256(one.data), one.file_name), one.data)
        for one in trial.attachments.files
    }
    data = _described(layout.content(facts.content_hash), trial.data)
    return item_document(dataset, facts, data, _described(layout.document(sha256(provenance)), provenance), beside)


def _described(path: str, data: bytes) -> DocumentFacts:
    return DocumentFacts(f"../../../{path}", sha256(data), len(data))


def _rules(services: Services, policy: Policy) -> KeyRules:
    secret = _secret(services, policy) if policy.masks else b""
    return KeyRules(policy, secret, None, footprints_of(services, policy, secret))


def _secret(services: Services, policy: Policy) -> bytes:
    """Returns the policy's secret if this machine has it, else one of trials."""
    try:
        return read_secret(services.settings, policy.key_id or "")
    except KfmError:
        return _TRIAL_SECRET


def _bounds(window: Window) -> tuple[datetime, datetime]:
    return window.start, window.end


def write_trial(trial: Trial, folder: Path) -> list[Path]:
    """Writes what would be published; nothing under a policy that refuses."""
    if trial.table is None or trial.refusals:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    files = {"data.parquet": trial.data, **{one.file_name: one.data for one in trial.attachments.files}}
    if trial.item:
        files["item.json"] = trial.item
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return [folder / name for name in files]
