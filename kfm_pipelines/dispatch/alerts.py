"""The sensor that publishes every failed run to the alert topic.

It keeps its own cursor instead of using Dagster's `run_failure_sensor`, which moves past a run even if its function
raised: while SNS is unavailable, alerts would be lost. Here failed sends stay in the cursor until they succeed.
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg
from dagster import DagsterEventType
from dagster_shared.error import SerializableErrorInfo

from kfm_pipelines.aws.batches import text_attributes
from kfm_pipelines.aws.clients import sns_client
from kfm_pipelines.aws.errors import translate_aws_errors
from kfm_pipelines.errors import KfmError
from kfm_pipelines.orchestration.names import STAGES
from kfm_pipelines.orchestration.resource import ServicesResource
from kfm_pipelines.orchestration.tags import DATASET_TAG
from kfm_pipelines.producer.upload import Topic

MAX_SUBJECT_LENGTH = 100  # SNS refuses more, and everything but printable ASCII
RUNS_PER_TICK = 50  # a tick has to end within a minute
MAX_REFUSALS = 3  # per tick: an unavailable topic takes long to refuse
MAX_RETRY_BACKLOG = 1000  # limits the cursor when a topic never comes back
ASSET_JOB = "__ASSET_JOB"  # the job of runs over selected assets, such as a backfill from the UI


class AlertTopic(Topic):
    def send_alert(self, failed: "FailedRun") -> None:
        attributes = {"type": "run-failure", **({"dataset": failed.dataset} if failed.dataset else {})}
        subject = "".join(character if " " <= character <= "~" else "?" for character in failed.subject)
        with translate_aws_errors(f"publishing to topic {self.name}"):
            sns_client().publish(
                TopicArn=self._arn,
                Subject=subject[:MAX_SUBJECT_LENGTH],
                Message=json.dumps(failed.as_document()),
                MessageAttributes=text_attributes(attributes),
            )


@dataclass(frozen=True, slots=True)
class FailedRun:
    """The content of an alert. It names error classes without their messages, which may quote data."""

    run_id: str
    job: str
    dataset: str | None
    keys: int | None
    steps: tuple[tuple[str, str], ...]  # each failed step with its error class
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
    """The last failure event read, and the runs whose alert has to be sent again."""

    after: int
    retry_run_ids: tuple[str, ...] = ()

    @classmethod
    def parse(cls, cursor: str) -> "AlertCursor":
        stored = json.loads(cursor)
        return cls(int(stored["after"]), tuple(stored["again"]))

    def serialise(self) -> str:
        return json.dumps({"after": self.after, "again": self.retry_run_ids})


def failure_sensor(jobs: Sequence[str]) -> dg.SensorDefinition:
    @dg.sensor(
        minimum_interval_seconds=15,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Publishes every failed run to the alert topic.",
    )
    def kfm_failed_runs(context: dg.SensorEvaluationContext, services: ServicesResource) -> dg.SensorResult:
        topic = AlertTopic(services.open().settings.alert_topic)
        cursor, summary = tick(context.instance, context.cursor, {*jobs, ASSET_JOB}, topic.send_alert)
        return dg.SensorResult(skip_reason=summary, cursor=cursor.serialise())

    return kfm_failed_runs


def tick(
    instance: dg.DagsterInstance, cursor: str | None, jobs: Collection[str], send: Callable[[FailedRun], None]
) -> tuple[AlertCursor, str]:
    """Sends new alerts and those that were refused before. Runs that failed before the first tick are not sent."""
    if cursor is None:
        latest = instance.fetch_run_status_changes(DagsterEventType.RUN_FAILURE, limit=1).records
        return AlertCursor(latest[0].storage_id if latest else -1), "watching for failed runs from now on"
    before = AlertCursor.parse(cursor)
    newer = dg.RunStatusChangeRecordsFilter(event_type=DagsterEventType.RUN_FAILURE, after_storage_id=before.after)
    new = instance.fetch_run_status_changes(newer, limit=RUNS_PER_TICK, ascending=True).records
    runs = list(dict.fromkeys([*before.retry_run_ids, *(one.event_log_entry.run_id for one in new)]))
    sent, refused = _send_all(instance, runs, jobs, send)
    # Refused runs go last, so that they never keep others from being sent.
    left = [run_id for run_id in runs if run_id not in sent and run_id not in refused] + list(refused)
    count = sum(sent.values())
    summary = f"{count} alert{'' if count == 1 else 's'} sent"
    if refused:
        summary += f"; {len(left)} waiting: {next(iter(refused.values()))}"
    newest = max([before.after, *(one.storage_id for one in new)])
    return AlertCursor(newest, tuple(left[-MAX_RETRY_BACKLOG:])), summary


def _send_all(
    instance: dg.DagsterInstance, runs: Sequence[str], jobs: Collection[str], send: Callable[[FailedRun], None]
) -> tuple[dict[str, bool], dict[str, str]]:
    """Returns the handled runs and whether an alert was sent, and the refused runs with the reason."""
    done: dict[str, bool] = {}
    refused: dict[str, str] = {}
    for run_id in runs[:RUNS_PER_TICK]:
        failed = _failed_run(instance, run_id)
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


def _failed_run(instance: dg.DagsterInstance, run_id: str) -> FailedRun | None:
    """Returns None when the run has been deleted."""
    record = instance.get_run_record_by_id(run_id)
    if record is None:
        return None
    run = record.dagster_run
    ended = datetime.fromtimestamp(record.end_time, UTC) if record.end_time else record.update_timestamp
    steps = tuple(_failed_steps(instance, run_id))
    return FailedRun(run_id, run.job_name, _dataset_of(run), _count_keys(run), steps, ended.astimezone(UTC))


def _failed_steps(instance: dg.DagsterInstance, run_id: str) -> Iterator[tuple[str, str]]:
    for record in instance.get_records_for_run(run_id, of_type=DagsterEventType.STEP_FAILURE).records:
        event = record.event_log_entry.dagster_event
        if event is not None and event.step_key is not None:
            yield event.step_key, _root_error_class(event.step_failure_data.error)


def _root_error_class(error: SerializableErrorInfo | None) -> str:
    """Returns the class of the first error; Dagster wraps it in its own."""
    while error is not None and error.cause is not None:
        error = error.cause
    return (error.cls_name if error else None) or "unknown"


def _dataset_of(run: dg.DagsterRun) -> str | None:
    selected = {"/".join(key.path[:-1]) for key in run.asset_selection or () if key.path[-1] in STAGES}
    return run.tags.get(DATASET_TAG) or (selected.pop() if len(selected) == 1 else None)


def _count_keys(run: dg.DagsterRun) -> int | None:
    count = run.tags.get("kfm/keys", "")
    if count.isdecimal():
        return int(count)
    return 1 if "dagster/partition" in run.tags else None
