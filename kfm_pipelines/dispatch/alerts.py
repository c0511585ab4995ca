"""The topic where people and their tools are told of what failed. Who listens there is up to whoever runs the site."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg
from dagster import DagsterEventType
from dagster_shared.error import SerializableErrorInfo

from kfm_pipelines.aws.batches import text_attributes
from kfm_pipelines.aws.clients import sns_client
from kfm_pipelines.aws.errors import translate_aws_errors
from kfm_pipelines.errors import KfmError
from kfm_pipelines.orchestration.names import STAGES
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.producer.upload import Topic

if TYPE_CHECKING:
    pass

MAX_SUBJECT_LENGTH = 100  # SNS refuses more, and everything but printable ASCII


class AlertTopic(Topic):
    def send_alert(self, subject: str, document: Mapping[str, object], attributes: Mapping[str, str]) -> None:
        """`subject` is what a mail has on top; subscriptions filter by `attributes`."""
        plain = "".join(character if " " <= character <= "~" else "?" for character in subject)
        with translate_aws_errors(f"publishing to topic {self.name}"):
            sns_client().publish(
                TopicArn=self._arn,
                Subject=plain[:MAX_SUBJECT_LENGTH],
                Message=json.dumps(document),
                MessageAttributes=text_attributes(attributes),
            )


RUNS_PER_TICK = 50  # a tick has to end within a minute
MAX_REFUSALS = 3  # then the topic is away, and to ask it takes its time
MAX_RETRY_BACKLOG = 1000  # a topic that is away for good must not make the sensor's memory grow without end
ASSET_JOB = "__ASSET_JOB"  # runs over chosen assets, as a backfill from the UI has them


@dataclass(frozen=True, slots=True)
class FailedRun:
    """What is told. Classes of errors, no texts: a text may quote data."""

    run_id: str
    job: str
    dataset: str | None
    keys: int | None
    steps: tuple[tuple[str, str], ...]  # each that failed, and the class of its error
    failed_at: datetime

    @property
    def subject(self) -> str:
        keys = {None: "", 1: ", 1 key"}.get(self.keys, f", {self.keys} keys")
        where = ", ".join(step.rpartition("__")[2] for step, _ in self.steps)
        return f"KFM: a run of {self.dataset or self.job} failed{f' at {where}' if where else ''}{keys}"

    def as_document(self) -> dict[str, object]:
        return {
            "type": "run-failure-v1",
            "id": f"run-failure:{self.run_id}",
            "run_id": self.run_id,
            "job": self.job,
            "dataset": self.dataset,
            "keys": self.keys,
            "failed_steps": [{"step": step, "error": error} for step, error in self.steps],
            "failed_at": self.failed_at.isoformat(),
            "summary": self.subject,
        }


@dataclass(frozen=True, slots=True)
class AlertCursor:
    """How far failures were told: those after this event are new, and these have to be tried again."""

    after: int
    retry_run_ids: tuple[str, ...] = ()

    @classmethod
    def parse(cls, cursor: str | None) -> "AlertCursor | None":
        if cursor is None:
            return None
        said = json.loads(cursor)
        return cls(int(said["after"]), tuple(said["again"]))

    def serialise(self) -> str:
        return json.dumps({"after": self.after, "again": self.retry_run_ids})


def failure_sensor(jobs: Sequence[str]) -> dg.SensorDefinition:
    @dg.sensor(
        minimum_interval_seconds=15,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells the topic for alerts of every run that failed.",
    )
    def kfm_failed_runs(context: dg.SensorEvaluationContext, services: ServicesResource) -> dg.SensorResult:

        topic = AlertTopic(services.open().settings.alert_topic)
        told, said = tick(context.instance, context.cursor, {*jobs, ASSET_JOB}, lambda run: _send(topic, run))
        return dg.SensorResult(skip_reason=said, cursor=told.serialise())

    return kfm_failed_runs


def tick(
    instance: dg.DagsterInstance, cursor: str | None, jobs: Collection[str], send: Callable[[FailedRun], None]
) -> tuple[AlertCursor, str]:
    """Send what is new and what was not taken before. What failed before anybody was to be told of it is no news."""
    before = AlertCursor.parse(cursor)
    if before is None:
        return AlertCursor(_newest_failure_id(instance)), "tells of the runs that fail from now on"
    newest, new = _read_new_failures(instance, before.after)
    runs = [*before.retry_run_ids, *(run_id for run_id in new if run_id not in before.retry_run_ids)]
    sent, refused = _send_all(instance, runs, jobs, send)
    left = [run_id for run_id in runs if run_id not in sent and run_id not in refused] + list(refused)
    said = f"{sum(sent.values())} failed runs told"
    if refused:
        said += f"; {len(left)} wait: {next(iter(refused.values()))}"
    return AlertCursor(newest, tuple(left[-MAX_RETRY_BACKLOG:])), said


def _send_all(
    instance: dg.DagsterInstance, runs: Sequence[str], jobs: Collection[str], send: Callable[[FailedRun], None]
) -> tuple[dict[str, bool], dict[str, str]]:
    """Those that are done with and whether they were sent, and those that were refused and why. Refused ones come last
    next time, so that none stands in the way of others."""
    done: dict[str, bool] = {}
    refused: dict[str, str] = {}
    for run_id in runs[:RUNS_PER_TICK]:
        failed = failed_run(instance, run_id)
        is_ours = failed is not None and failed.job in jobs
        try:
            if failed is not None and is_ours:
                send(failed)
            done[run_id] = is_ours
        except KfmError as error:
            refused[run_id] = str(error)
            if len(refused) == MAX_REFUSALS:
                break
    return done, refused


def failed_run(instance: dg.DagsterInstance, run_id: str) -> FailedRun | None:
    """None when there is no such run any more."""
    record = instance.get_run_record_by_id(run_id)
    if record is None:
        return None
    run = record.dagster_run
    ended = datetime.fromtimestamp(record.end_time, UTC) if record.end_time else record.update_timestamp
    steps = tuple(_failed_steps(instance, run_id))
    return FailedRun(run_id, run.job_name, _dataset_of(run), _count_keys(run), steps, ended.astimezone(UTC))


def _read_new_failures(instance: dg.DagsterInstance, after: int) -> tuple[int, list[str]]:
    """Up to which event was looked, and the runs that failed."""
    newer = dg.RunStatusChangeRecordsFilter(event_type=DagsterEventType.RUN_FAILURE, after_storage_id=after)
    found = instance.fetch_run_status_changes(newer, limit=RUNS_PER_TICK, ascending=True).records
    return max([after, *(one.storage_id for one in found)]), [one.event_log_entry.run_id for one in found]


def _newest_failure_id(instance: dg.DagsterInstance) -> int:
    found = instance.fetch_run_status_changes(DagsterEventType.RUN_FAILURE, limit=1).records
    return found[0].storage_id if found else -1


def _failed_steps(instance: dg.DagsterInstance, run_id: str) -> Iterator[tuple[str, str]]:
    found = instance.get_records_for_run(run_id, of_type=DagsterEventType.STEP_FAILURE).records
    for record in found:
        event = record.event_log_entry.dagster_event
        if event is not None and event.step_key is not None:
            yield event.step_key, _root_error_class(event.step_failure_data.error)


def _root_error_class(error: SerializableErrorInfo | None) -> str:
    """Of what was raised first; Dagster wraps it in errors of its own."""
    while error is not None and error.cause is not None:
        error = error.cause
    return (error.cls_name if error else None) or "unknown"


def _dataset_of(run: dg.DagsterRun) -> str | None:
    tagged = run.tags.get("kfm/dataset")
    chosen = {"/".join(key.path[:-1]) for key in run.asset_selection or () if key.path[-1] in STAGES}
    return tagged or (chosen.pop() if len(chosen) == 1 else None)


def _count_keys(run: dg.DagsterRun) -> int | None:
    counted = run.tags.get("kfm/keys", "")
    if counted.isdecimal():
        return int(counted)
    return 1 if "dagster/partition" in run.tags else None


def _send(topic: "AlertTopic", failed: FailedRun) -> None:
    attributes = {"type": "run-failure", **({"dataset": failed.dataset} if failed.dataset else {})}
    topic.send_alert(failed.subject, failed.as_document(), attributes)
