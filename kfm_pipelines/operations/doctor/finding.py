"""What one check found, and what to do about it when it is wrong."""

from dataclasses import dataclass

from kfm_pipelines.aws.queue_settings import account_of
from kfm_pipelines.aws.topology import AwsAccount
from kfm_pipelines.errors import SettingsInvalid
from kfm_pipelines.services import Services

FIX_REMEDY = "run `kfm doctor --fix`, or create it as you create the rest of your infrastructure"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    check: str
    ok: bool
    found: str
    remedy: str = ""


def site_account(services: Services) -> AwsAccount:
    """One missing queue must not make topics and buckets look wrong too."""
    for intake in services.intakes:
        try:
            return account_of(intake.queue.url)
        except SettingsInvalid:
            continue
    raise SettingsInvalid("there is none of the queues; `kfm doctor --fix` creates them")
