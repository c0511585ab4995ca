"""The three routes into the pipeline: what a message on each looks like, and who sends it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol

from kfm_pipelines.aws.batches import Outgoing
from kfm_pipelines.aws.queue import Queue
from kfm_pipelines.errors import ProducerMistaken
from kfm_pipelines.events import normalise
from kfm_pipelines.events.notice import ObjectNotice, Priority
from kfm_pipelines.producer.envelope import object_envelope
from kfm_pipelines.producer.messages import auto_update, s3_notification
from kfm_pipelines.producer.upload import FifoProducer, Topic, UploadedObject
from kfm_pipelines.services import Services

Route = Literal["s3", "auto-update", "fifo"]
ROUTES: tuple[Route, ...] = ("s3", "auto-update", "fifo")


class MessageSender(Protocol):
    def send(self, body: str, attributes: Mapping[str, str] | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class NoticeSender:
    """Sends to the notice topic or directly to its queue. Routing attributes are taken from the body."""

    services: Services
    bypass_topic: bool

    def send(self, body: str, attributes: Mapping[str, str] | None = None) -> None:
        match normalise(body):
            case (ObjectNotice(dataset=str(dataset), priority=priority),):
                settings = self.services.settings
            case _:
                raise ProducerMistaken("not an auto-update notice: it must name one asset of one dataset")
        if self.bypass_topic:
            Queue(settings.priority_queue if priority == "high" else settings.queue).send(body, attributes)
        else:
            product = self.services.datasets[dataset].product
            routing = {"dataset": dataset, "product": product, "priority": priority}
            Topic(settings.notice_topic).send(body, {**(attributes or {}), **routing})


@dataclass(frozen=True, slots=True)
class FifoSender:
    producer: FifoProducer
    group: str

    def send(self, body: str, attributes: Mapping[str, str] | None = None) -> None:
        self.producer.send_all([Outgoing(body, attributes or {}, self.group)])


def sender_for_route(services: Services, route: Route, target: str, group: str) -> MessageSender:
    settings = services.settings
    to_queue = target == "queue"
    if route == "auto-update":
        return NoticeSender(services, to_queue)
    if route == "fifo":
        target_end = Queue(settings.fifo_queue) if to_queue else Topic(settings.fifo_queue)
        hits = partial(services.telemetry.metrics.count, "sqs_fifo.dedupe_window_hits")
        return FifoSender(FifoProducer(target_end, on_window_hit=hits), group)
    return services.queue if to_queue else Topic(settings.topic)


def format_message(uploaded: UploadedObject, route: Route, priority: Priority = "normal") -> str:
    if route == "auto-update":
        uri, at = f"s3://{uploaded.bucket}/{uploaded.object_key}", uploaded.event_time
        return json.dumps(auto_update(uploaded.dataset.dataset, uri, f'"{uploaded.etag}"', at, None, at, priority))
    names = ("bucket", "object_key", "etag", "size", "version_id", "event_time")
    fields: dict[str, Any] = {name: getattr(uploaded, name) for name in names}
    if route == "fifo":
        return object_envelope(uploaded.dataset.event_source, **fields).body
    return json.dumps(s3_notification(**fields))
