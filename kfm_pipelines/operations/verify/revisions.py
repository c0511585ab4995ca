"""The history of a key. An old revision that is put back is genuine, but its neighbours give it away."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from kfm_pipelines.care.verifier import release_digest
from kfm_pipelines.catalog.facts import PROVENANCE
from kfm_pipelines.operations.verify.published_tree import PublishedTree
from kfm_pipelines.operations.verify.release import PublishedRelease
from kfm_pipelines.operations.verify.result import PUBLICATION_HINT, Check

GATES_GREEN = "gates were green"


def check_reports(release: PublishedRelease) -> Iterator[Check]:
    """One green report is enough: the same bytes may have been refused before, under other rules or without review."""
    tree = release.tree
    content, item, provenance = (
        tree.digest_and_size(path)[0] for path in (release.asset("data"), release.path, release.asset("provenance"))
    )
    digest = release_digest(content, item, {PROVENANCE: provenance})
    about = []
    for path in tree.store.paths(release.layout.validation_reports(release.key)):
        seal = tree.check_seal(path)
        yield seal
        report = tree.document(path) if seal.ok else {"gates": []}
        if any(gate["digest"] == digest for gate in report["gates"]):
            green = report["passed"] is True and all(gate["passed"] is True for gate in report["gates"])
            about.append((green, path))
    if about:
        green, path = max(about)
        yield Check(GATES_GREEN, path, ok=green, found="" if green else "no report is green for what is published")
    else:
        yield Check(GATES_GREEN, release.path, ok=True, found="unknown: no report of this release is kept")


def check_revisions(tree: PublishedTree, history: str) -> Iterator[Check]:
    """Checks the revisions linked by the `history` document. Withdrawn revisions leave gaps."""
    linked = {_revision_number(path) for rel, path in tree.links(history, tree.document(history)) if rel == "item"}
    folder = history.removesuffix(".json")
    there = sorted(_revision_number(path) for path in tree.store.paths(folder) if path.endswith(".json"))
    apart = sorted(linked ^ set(there))
    state = "not linked" if apart and apart[0] in there else "gone"
    found = f"revision {apart[0]} is {state}; {PUBLICATION_HINT}" if apart else ""
    yield Check("history links every revision there is", history, ok=not apart, found=found)
    missing = sorted({*range(1, max(there, default=0))} - {*there})
    if missing:
        yield Check("history is whole", history, ok=True, found=_describe_missing(missing), note=True)
    documents = {number: tree.document(f"{folder}/{number}.json") for number in there}
    wrong = "" if there else "there is no revision"
    for number, document in documents.items():
        wrong = wrong or _describe_inconsistency(number, document, there)
    yield Check("revisions follow each other", history, ok=not wrong, found=wrong and f"{wrong}; {PUBLICATION_HINT}")


def _describe_missing(missing: Sequence[int]) -> str:
    several = f"{len(missing)} revisions from {missing[0]} to {missing[-1]} are"
    which = f"revision {missing[0]} is" if len(missing) == 1 else several
    return f"{which} missing: withdrawn, or lost when only the last revision of a store was restored"


def _describe_inconsistency(number: int, document: dict[str, Any], existing: Sequence[int]) -> str:
    before = next((one for one, this in pairwise(existing) if this == number), None)
    after = next((one for this, one in pairwise(existing) if this == number), None)
    properties = document["properties"]
    if properties["version"] != str(number):
        return f"revision {number} has another number inside"
    if bool(properties.get("deprecated")) != (after is not None):
        return f"revision {number} is {'the last one but' if after is None else 'not'} marked as deprecated"
    if not _is_valid_neighbour(_related_revision(document, "predecessor-version"), before, number, before):
        return f"revision {number} does not link the one before it"
    if not _is_valid_neighbour(_related_revision(document, "successor-version"), number, after, after):
        return f"revision {number} does not link the one after it"
    return ""


def _is_valid_neighbour(stated: int | None, above: int | None, below: int | None, expected: int | None) -> bool:
    """Accepts the existing neighbour, or a withdrawn one between the two."""
    if stated is None or expected is None:
        return stated == expected
    return stated == expected or (above is not None and below is not None and above < stated < below)


def _related_revision(document: dict[str, Any], relation: str) -> int | None:
    return next((_revision_number(link["href"]) for link in document["links"] if link["rel"] == relation), None)


def _revision_number(path: str) -> int:
    found = re.fullmatch(r"([1-9][0-9]{0,8})\.json", path.rsplit("/", 1)[-1])
    if found is None:
        raise ValueError(f"{path} is not named like a revision")
    return int(found[1])
