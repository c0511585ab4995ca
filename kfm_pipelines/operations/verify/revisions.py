"""The revisions of a key among each other: none is passed over, and the last one is the one in force.

Each is signed on its own, so older ones that are put back are genuine. What gives them away is what lies around them.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from kfm_pipelines.care.verifier import release_digest
from kfm_pipelines.catalog.facts import PROVENANCE
from kfm_pipelines.operations.verify.check import PUBLICATION_HINT, Check
from kfm_pipelines.operations.verify.published_tree import PublishedTree
from kfm_pipelines.operations.verify.release import PublishedRelease

GATES_GREEN = "gates were green"


def check_reports(release: PublishedRelease) -> Iterator[Check]:
    """The same bytes may have been refused before, under other rules or for want of a review."""
    shelf = release.tree
    content, item, provenance = (
        shelf.digest_and_size(path)[0] for path in (release.asset("data"), release.path, release.asset("provenance"))
    )
    digest = release_digest(content, item, {PROVENANCE: provenance})
    about = []
    for path in shelf.store.paths(release.layout.validation_reports(release.key)):
        seal = shelf.check_seal(path)
        yield seal
        report = shelf.document(path) if seal.ok else {"gates": []}
        if any(gate["digest"] == digest for gate in report["gates"]):
            green = report["passed"] is True and all(gate["passed"] is True for gate in report["gates"])
            about.append((green, path))
    if about:
        green, path = max(about)
        yield Check(GATES_GREEN, path, ok=green, found="" if green else "no report says so of what is published")
    else:
        yield Check(GATES_GREEN, release.path, ok=True, found="not known: no report of this release is kept")


def check_revisions(tree: PublishedTree, history: str) -> Iterator[Check]:
    """`history` is the document that links them. Numbers may be missing: a revision that was taken back disappears."""
    linked = sorted(
        _revision_number(path) for rel, path in tree.links(history, tree.document(history)) if rel == "item"
    )
    folder = history.removesuffix(".json")
    there = sorted(_revision_number(path) for path in tree.store.paths(folder) if path.endswith(".json"))
    apart = sorted(set(linked) ^ set(there))
    found = (
        f"revision {apart[0]} is {'not linked' if apart[0] in there else 'gone'}; {PUBLICATION_HINT}" if apart else ""
    )
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
    which = f"revision {missing[0]} is" if len(missing) == 1 else (
        f"{len(missing)} revisions from {missing[0]} to {missing[-1]} are"
    )  # fmt: skip
    return f"{which} not there: taken back, or lost with a store of which only the last revision was restored"


def _describe_inconsistency(number: int, document: dict[str, Any], existing: Sequence[int]) -> str:
    """What does not hold of this one; nothing of one that is in its place."""
    before = next((one for one, this in pairwise(existing) if this == number), None)
    after = next((one for this, one in pairwise(existing) if this == number), None)
    properties = document["properties"]
    if properties["version"] != str(number):
        return f"revision {number} says that it is another"
    if bool(properties.get("deprecated")) != (after is not None):
        return f"revision {number} is the last one and says that it is deprecated" if after is None else (
            f"revision {number} does not say that it is deprecated"
        )  # fmt: skip
    if not _is_valid_neighbour(_related_revision(document, "predecessor-version"), before, number, before):
        return f"revision {number} does not say what came before it"
    if not _is_valid_neighbour(_related_revision(document, "successor-version"), number, after, after):
        return f"revision {number} does not say what came after it"
    return ""


def _is_valid_neighbour(stated: int | None, above: int | None, below: int | None, expected: int | None) -> bool:
    """The neighbour that is there, or one between the two that was taken back."""
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
