"""Announces to derived datasets what their upstreams have published: each release becomes an event in the inbox.

What is missing is found by comparing what is published with what is in the inbox. So nothing is lost if a process stops
between a publication and its announcement, two ticks at once announce once, and what was published before a derived
dataset was declared is announced like the rest.
"""

from collections.abc import Iterator
from datetime import timedelta

from kfm_pipelines.catalog.collections.tables import Mark, changes_of_collections, read_mark, record_mark
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import KfmError
from kfm_pipelines.events import IngestEvent
from kfm_pipelines.events.notice import release_uri
from kfm_pipelines.events.release import release_body, release_event
from kfm_pipelines.inbox.record import record
from kfm_pipelines.services import Services
from kfm_pipelines.state.database import IDLE_IN_TRANSACTION_SECONDS
from kfm_pipelines.state.inbox import Delivery
from kfm_pipelines.state.releases import Derivation, current_releases, unannounced_releases

RELEASES = "kfm-releases"  # instead of a queue's name
# Of one upstream in one tick; the next tick goes on.
MAX_ANNOUNCED = 1000
# A publication is visible this long after its entry in the ledger, or never: Postgres ends idle transactions sooner.
MARGIN = timedelta(seconds=5 * IDLE_IN_TRANSACTION_SECONDS)


def announce_releases(services: Services) -> list[str]:
    """A chore of the tick. Returns problems."""
    return [problem for dataset in services.datasets.values() for problem in _announce_to(services, dataset)]


def all_announced(services: Services) -> bool:
    """Whether all that is published by now has been announced to every derived dataset."""
    with services.database.transaction() as connection:
        changes = changes_of_collections(connection)
        return all(
            _changes_of(read_mark(connection, name, _kind(_derivation(dataset, services.datasets[name]))))
            == changes.get(name)
            for dataset in services.datasets.values()
            for name in dataset.input.upstream_names
        )


def list_releases(services: Services, dataset: Dataset) -> Iterator[tuple[IngestEvent, str]]:
    """Yields all that is published of the upstreams, as the events that announce it, each with its body."""
    with services.database.transaction() as connection:
        for name in dataset.input.upstream_names:
            version = services.datasets[name].key.transform_version
            for release in current_releases(connection, name, version):
                yield release_event(release, dataset), release_body(release)


def _announce_to(services: Services, dataset: Dataset) -> Iterator[str]:
    for name in dataset.input.upstream_names:
        try:
            _announce(services, dataset, _derivation(dataset, services.datasets[name]))
        except KfmError as error:
            yield f"what is published of {name} could not be announced to {dataset.dataset}: {error}; will try again"


def _announce(services: Services, dataset: Dataset, derivation: Derivation) -> None:
    """Looks only if something of the upstream was published since all of it was last announced, and then at what was
    published since."""
    upstream, kind = derivation.upstream, _kind(derivation)
    with services.database.transaction() as connection:
        # Before the releases are read, so that what is published meanwhile counts as not announced.
        changes = changes_of_collections(connection).get(upstream)
        mark = read_mark(connection, upstream, kind)
        if changes == _changes_of(mark):
            return
        since = mark.at - MARGIN if mark else None
        releases = unannounced_releases(connection, derivation, since=since, limit=MAX_ANNOUNCED)
    deliveries = [Delivery(release_body(one), (release_event(one, dataset),)) for one in releases]
    if deliveries:
        record(services.database, RELEASES, deliveries, services.datasets)
    if changes is not None and len(releases) < MAX_ANNOUNCED:
        with services.database.transaction() as connection:
            record_mark(connection, kind, {upstream: changes})


def _derivation(dataset: Dataset, upstream: Dataset) -> Derivation:
    return Derivation(
        dataset.dataset,
        dataset.key.transform_version,
        upstream.dataset,
        upstream.key.transform_version,
        folder=release_uri(upstream.dataset, ""),
    )


def _kind(derivation: Derivation) -> str:
    """Returns the name under which it is recorded how much of the upstream was announced."""
    return f"announced to {derivation.dataset}@{derivation.version} from {derivation.upstream_version}"


def _changes_of(mark: Mark | None) -> int | None:
    return mark.changed if mark else None
