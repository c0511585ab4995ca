"""Validation reports of a key, as far as they are kept: each is sealed, and one about what is published is green.

They are removed after a time, so one that is not there tells nothing.
"""

from collections.abc import Iterator

from kfm_pipelines.care.verifier import release_digest
from kfm_pipelines.catalogs.release_facts import PROVENANCE
from kfm_pipelines.operations.verifying.checking import Check
from kfm_pipelines.operations.verifying.release import Release

GREEN = "gates were green"


def reports_agree(release: Release) -> Iterator[Check]:
    """The same bytes may have been refused before, under other rules or for want of a review."""
    shelf = release.shelf
    content, item, provenance = (
        shelf.facts(path)[0] for path in (release.asset("data"), release.path, release.asset("provenance"))
    )
    digest = release_digest(content, item, {PROVENANCE: provenance})
    about = []
    for path in shelf.store.paths(release.layout.validation_reports(release.key)):
        seal = shelf.seal(path)
        yield seal
        report = shelf.document(path) if seal.ok else {"gates": []}
        if any(gate["digest"] == digest for gate in report["gates"]):
            green = report["passed"] is True and all(gate["passed"] is True for gate in report["gates"])
            about.append((green, path))
    if about:
        green, path = max(about)
        yield Check(GREEN, path, ok=green, found="" if green else "no report says so of what is published")
    else:
        yield Check(GREEN, release.path, ok=True, found="not known: no report of this release is kept")
