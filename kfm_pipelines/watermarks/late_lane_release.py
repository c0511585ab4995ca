"""The late lane as operators use it: what is held is let go of by night, or by somebody who says why."""

from collections.abc import Sequence

from kfm_pipelines.errors import KeyInvalid, LateRefused
from kfm_pipelines.events import CanonicalKey
from kfm_pipelines.services import Services
from kfm_pipelines.watermarks import late_lane
from kfm_pipelines.watermarks.late_lane import LateEvent, LateFilter

LATE_LANE_JOB_NAME = "kfm_late_lane"


def find_held_events(services: Services, criteria: LateFilter) -> list[LateEvent]:
    """What would be released; LateRefused or KeyInvalid when something was named that is not held or not known."""
    if criteria.key is not None and not late_lane.is_known_key(services.database, criteria.key):
        raise KeyInvalid(f"{criteria.key[:200]}: no event has named this key; see kfm late list")
    found = late_lane.find_late_events(services.database, criteria)
    for digits in criteria.identities:
        _require_single_match(services, digits, [event for event in found if event.identity.startswith(digits)])
    return found


def find_outdated_keys(services: Services, events: Sequence[LateEvent]) -> list[str]:
    """Keys of these events that cannot take them: they are of a version that is not declared any more, and no key of
    the declared one takes its inputs from them."""
    outdated = {event.key: event.dataset for event in events if not _is_declared(services, event.dataset, event.key)}
    taking = late_lane.find_dependent_keys(services.database, list(outdated))
    taken = {source for key, source in taking.items() if _is_declared(services, outdated[source], key)}
    return sorted(outdated.keys() - taken)


def release(services: Services, events: Sequence[LateEvent], *, actor: str, reason: str) -> list[str]:
    """Let these events into their keys; identities of those that nobody else has released meanwhile."""
    if not actor.strip() or not reason.strip():
        raise LateRefused("a release needs who asked for it, and why")
    return late_lane.release(services.database, services.datasets, events, actor=actor, reason=reason)


def release_by_rule(services: Services) -> list[str]:
    """What rule `replay` holds, as every night."""
    events = late_lane.find_late_events(services.database, LateFilter(rule="replay"))
    return release(services, events, actor=LATE_LANE_JOB_NAME, reason="held until the night by rule replay")


def _is_declared(services: Services, dataset: str, key: str) -> bool:
    declared = services.datasets.get(dataset)
    return declared is not None and declared.key.transform_version == CanonicalKey.parse(key).transform_version


def _require_single_match(services: Services, digits: str, found: Sequence[LateEvent]) -> None:
    if len(found) > 1:
        raise LateRefused(f"{digits}: {len(found)} held events begin with that; give more of the identity")
    if found:
        return
    known = late_lane.find_late_events(services.database, LateFilter(identities=(digits,), state=None), limit=1)
    if known:
        one = known[0]
        if one.state == "held":
            raise LateRefused(f"{digits}: is held, but of dataset {one.dataset} and key {one.key}: not what was chosen")
        by = f" by {one.changed_by}" if one.state == "released" else f" by rule {one.rule}"
        raise LateRefused(f"{digits}: is not held; it is {one.state}{by} (key {one.key})")
    raise LateRefused(f"{digits}: no late event has this identity; see kfm late list")
