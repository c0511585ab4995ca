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
from kfm_pipelines.services import Services

Look = Callable[[], Iterator[Finding]]


def diagnose(services: Services) -> list[Finding]:
    return [finding for check, look in _looks(services) for finding in _looked(check, look)]


def _wiring(services: Services) -> Iterator[Finding]:
    """What is wanted follows from the declarations; where those are wrong, nothing can be said about it."""
    for check, look in _wiring_looks(services):
        yield from _looked(check, look)


def _care(services: Services) -> Iterator[Finding]:
    for check, look in care_looks(services):
        yield from _looked(check, look)


def _looks(services: Services) -> Iterator[tuple[str, Look]]:
    yield "declarations", partial(declarations, services)
    yield "Postgres", partial(postgres, services)
    yield "kill switch", partial(switches, services)
    yield "care", partial(_care, services)
    yield "signing key", partial(signing_key, services)
    yield "list of software", partial(software, services)
    yield "store", partial(store, services)
    yield "store bucket", partial(store_findings, services)
    yield "wiring", partial(_wiring, services)


def _wiring_looks(services: Services) -> Iterator[tuple[str, Look]]:
    wanted = wiring(services.settings, services.datasets)
    for bucket in sorted({dataset.input.bucket for dataset in services.datasets.values()}):
        yield f"bucket {bucket}", partial(bucket_findings, services, bucket)
    for topic in wanted.topics:
        yield f"topic {topic.name}", partial(topic_findings, services, topic)
    for one in wanted.subscriptions:
        label = f"subscription of {one.queue} to {one.topic}"
        yield label, partial(subscription_findings, services, one)
    for queue in wanted.queues:
        if queue.dead_letter_queue is not None:
            yield f"queue {queue.name}", partial(queue_findings, queue)


def _looked(check: str, function: Look) -> list[Finding]:
    findings: list[Finding] = []
    try:
        findings.extend(function())
    except KfmError as error:
        findings.append(Finding(check, ok=False, found=str(error), remedy="mend this, then run `kfm doctor` again"))
    return findings
