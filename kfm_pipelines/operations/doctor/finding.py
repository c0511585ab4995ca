"""What one check found, and what to do about it when it is wrong."""

from dataclasses import dataclass

from kfm_pipelines.aws.queue_settings import place_of
from kfm_pipelines.aws.topology import Place
from kfm_pipelines.errors import SettingsInvalid
from kfm_pipelines.services import Services

FIX = "run `kfm doctor --fix`, or create it as you create the rest of your infrastructure"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    ok: bool
    found: str
    remedy: str = ""


def place_of_site(services: Services) -> Place:
    """One missing queue must not make topics and buckets look wrong too."""
    for intake in services.intakes:
        try:
            return place_of(intake.queue.url)
        except SettingsInvalid:
            continue
    raise SettingsInvalid("there is none of the queues; `kfm doctor --fix` creates them")
