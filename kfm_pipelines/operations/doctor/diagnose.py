"""All checks in order; a part that cannot be asked is one wrong finding, and the others are still looked at."""

from collections.abc import Callable, Iterator
from functools import partial

from kfm_pipelines.aws.topology import wiring
from kfm_pipelines.errors import KfmError
from kfm_pipelines.operations.doctor.buckets import bucket_findings, store_findings
from kfm_pipelines.operations.doctor.care import care_looks
from kfm_pipelines.operations.doctor.finding import Finding
from kfm_pipelines.operations.doctor.queues import queue_findings
from kfm_pipelines.operations.doctor.surroundings import declarations, postgres, store, switches
from kfm_pipelines.operations.doctor.topics import subscription_findings, topic_findings
from kfm_pipelines.operations.doctor.trust import signing_key, software
from kfm_pipelines.services import Workshop

Look = Callable[[], Iterator[Finding]]


def diagnose(workshop: Workshop) -> list[Finding]:
    return [finding for check, look in _looks(workshop) for finding in _looked(check, look)]


def _wiring(workshop: Workshop) -> Iterator[Finding]:
    """What is wanted follows from the declarations; where those are wrong, nothing can be said about it."""
    for check, look in _wiring_looks(workshop):
        yield from _looked(check, look)


def _care(workshop: Workshop) -> Iterator[Finding]:
    for check, look in care_looks(workshop):
        yield from _looked(check, look)


def _looks(workshop: Workshop) -> Iterator[tuple[str, Look]]:
    yield "declarations", partial(declarations, workshop)
    yield "Postgres", partial(postgres, workshop)
    yield "kill switch", partial(switches, workshop)
    yield "care", partial(_care, workshop)
    yield "signing key", partial(signing_key, workshop)
    yield "list of software", partial(software, workshop)
    yield "store", partial(store, workshop)
    yield "store bucket", partial(store_findings, workshop)
    yield "wiring", partial(_wiring, workshop)


def _wiring_looks(workshop: Workshop) -> Iterator[tuple[str, Look]]:
    wanted = wiring(workshop.settings, workshop.datasets)
    for bucket in sorted({dataset.input.bucket for dataset in workshop.datasets.values()}):
        yield f"bucket {bucket}", partial(bucket_findings, workshop, bucket)
    for topic in wanted.topics:
        yield f"topic {topic.name}", partial(topic_findings, workshop, topic)
    for one in wanted.subscriptions:
        label = f"subscription of {one.queue} to {one.topic}"
        yield label, partial(subscription_findings, workshop, one)
    for queue in wanted.queues:
        if queue.dead_letters is not None:
            yield f"queue {queue.name}", partial(queue_findings, queue)


def _looked(check: str, look: Look) -> list[Finding]:
    findings: list[Finding] = []
    try:
        findings.extend(look())
    except KfmError as error:
        findings.append(Finding(check, ok=False, found=str(error), remedy="mend this, then run `kfm doctor` again"))
    return findings
