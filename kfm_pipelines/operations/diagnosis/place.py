"""Where our names are: the account and region of whichever of our queues there is."""

from kfm_pipelines.errors import SettingsInvalid
from kfm_pipelines.messaging.queue_settings import place_of
from kfm_pipelines.messaging.wiring import Place
from kfm_pipelines.operations.workshop import Workshop


def place_of_site(workshop: Workshop) -> Place:
    """One missing queue must not make topics and buckets look wrong too."""
    for intake in workshop.intakes:
        try:
            return place_of(intake.queue.url)
        except SettingsInvalid:
            continue
    raise SettingsInvalid("there is none of the queues; `kfm doctor --fix` creates them")
