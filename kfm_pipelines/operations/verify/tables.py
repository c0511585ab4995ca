"""Checks that the Iceberg tables show what the catalog shows."""

from collections.abc import Iterable, Iterator

from kfm_pipelines.operations.verify.published_tree import PublishedTree
from kfm_pipelines.operations.verify.result import PUBLICATION_HINT, Check
from kfm_pipelines.sinks.table.check import compare_all, compare_keys
from kfm_pipelines.sinks.table.warehouse import open_published_table, table_folder, version_hint

WHAT = "table has the rows of the catalog"


def check_key_in_table(tree: PublishedTree, pipeline: str, key: str) -> Iterator[Check]:
    if tree.exists(version_hint(pipeline)):
        table = open_published_table(tree.store, pipeline)
        yield _check(pipeline, compare_keys(tree.store, table, pipeline, [key]).items())


def check_table(tree: PublishedTree, pipeline: str) -> Iterator[Check]:
    if tree.exists(version_hint(pipeline)):
        table = open_published_table(tree.store, pipeline)
        yield _check(pipeline, compare_all(tree.store, table, pipeline))


def _check(pipeline: str, differences: Iterable[tuple[str, str]]) -> Check:
    found = list(differences)
    first = f"{found[0][0]}: {found[0][1]}; {PUBLICATION_HINT}" if found else ""
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return Check(WHAT, table_folder(pipeline), ok=not found, found=first + more)
