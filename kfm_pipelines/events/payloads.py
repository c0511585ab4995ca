"""Names the object that a producer's event means, by the template of the dataset that listens to the producer.

Belongs here: filling a declared template with what the event says. Does not: whether the result is a place the dataset
takes objects from; folding checks that for every object alike.
"""

import re

from kfm_pipelines.declarations import EventTemplate
from kfm_pipelines.declarations.dataset import Dataset, Datasets
from kfm_pipelines.errors import ContractBroken, LocationUndeclared
from kfm_pipelines.events.locations import check_object_key
from kfm_pipelines.events.notice import ObjectNotice, PayloadNotice
from kfm_pipelines.text import quote_value

# One path segment's worth at most: a payload may choose among the objects a template foresees, not leave them.
_VALUE = re.compile(r"[A-Za-z0-9_-]+")


def resolve_object(notice: PayloadNotice, datasets: Datasets) -> ObjectNotice:
    """The notice about the object the event means; nothing is known of its content."""
    dataset, template = _find_template(notice, datasets)
    object_key = _fill_template(template, notice)
    check_object_key(object_key)
    return ObjectNotice(
        shape=notice.shape,
        identity=notice.identity,
        bucket=dataset.input.bucket,
        object_key=object_key,
        event_time=notice.event_time,
        dataset=dataset.dataset,
        priority=notice.priority,
    )


def _find_template(notice: PayloadNotice, datasets: Datasets) -> tuple[Dataset, EventTemplate]:
    for dataset in datasets.values():
        for template in dataset.input.events:
            if template.source == notice.event_source:
                return dataset, template
    raise LocationUndeclared(
        f"the payload names no object, and no declared dataset has {quote_value(notice.event_source)} in its input.events"
    )


def _fill_template(template: EventTemplate, notice: PayloadNotice) -> str:
    values = {name: _template_value(notice, name) for name in sorted(template.payload_fields)}
    return template.object_key.format(**values, event_time=notice.event_time)


def _template_value(notice: PayloadNotice, name: str) -> str:
    value = notice.payload.get(name)
    if value is None or not _VALUE.fullmatch(str(value)):
        raise ContractBroken(
            f"payload.{name} of {quote_value(notice.event_source)} must be a whole number or letters, digits, _ and -, "
            f"not {quote_value(value)}"
        )
    return str(value)
