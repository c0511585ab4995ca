"""What releases are vouched for with: the key that signs them, and the list of the software that makes them."""

from collections.abc import Iterator

from kfm_pipelines.catalog.trust.environment import listed_versions, sbom, unlisted_software
from kfm_pipelines.catalog.trust.signer import signer_of
from kfm_pipelines.operations.doctor.finding import DoctorFinding
from kfm_pipelines.services import Services
from kfm_pipelines.settings import default_signing_key


def check_signing_key(services: Services) -> Iterator[DoctorFinding]:
    """Looking makes none: that is for the first release."""
    settings = services.settings
    own = settings.signing_key == default_signing_key(settings.home)
    if own and not settings.signing_key.exists():
        found = f"none yet; the first release makes {settings.signing_key}"
    else:
        found = f"{settings.signing_key}, key {signer_of(services).public.key_id[:16]}"
    shared = settings.store_url.startswith("s3://")
    yield DoctorFinding(
        "signing key",
        ok=not (own and shared),
        found=found,
        remedy="every machine would sign with a key of its own: give all of them one in KFM_SIGNING_KEY",
    )


def check_software(_: Services) -> Iterator[DoctorFinding]:
    problems = unlisted_software()
    yield DoctorFinding(
        "list of software",
        ok=not problems,
        found=problems[0]
        if problems
        else f"{len(listed_versions(sbom()))} distributions, and all that is imported is of them",
        remedy="install the code as a distribution, so that releases can tell what made them",
    )
