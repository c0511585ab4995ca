"""Makes a table show what is published: the rows of each key's current revision, and none of any other."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from kfm_pipelines.catalog.collections.tables import find_withdrawn_contents
from kfm_pipelines.catalog.documents import sha256
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import CareRefused, IntegrityBroken, KfmError, ObjectMissing
from kfm_pipelines.gates import RELEASE_GATES, TABLE_GATES
from kfm_pipelines.gates.schema_approval import versions_of
from kfm_pipelines.services import Services
from kfm_pipelines.sinks.table.clean import KEYS_FILE
from kfm_pipelines.sinks.table.commit import LOCK_SECONDS, commit_to, writing
from kfm_pipelines.sinks.table.forget import forget_withdrawn
from kfm_pipelines.sinks.table.maintain import thin_out
from kfm_pipelines.sinks.table.rows import digest_of_rows, is_exempted, rows_of, rows_of_key
from kfm_pipelines.sinks.table.schema import create_table, evolve
from kfm_pipelines.sinks.table.tables import Purpose, TableRevision, latest_revisions
from kfm_pipelines.sinks.table.warehouse import (
    load_table,
    open_catalog,
    table_folder,
    table_name,
    translated_errors,
    warehouse_root,
)
from kfm_pipelines.stages.publish.release import staged_release
from kfm_pipelines.state import outbox
from kfm_pipelines.state.outbox import Sink
from kfm_pipelines.state.transactions import KeyFacts, current_revisions, load_facts
from kfm_pipelines.state.verdicts import require_green
from kfm_pipelines.stores import Layout

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

ROWS_PER_COMMIT = 2_000_000
TICK = "tick"  # the writer of what no run has written
TICK_LOCK_SECONDS = 2.0
LISTED_KEYS = 5  # in a snapshot's summary, which every later version of the table's metadata repeats


@dataclass(frozen=True, slots=True)
class KeyRows:
    """What the table has to show of a key: no rows if nothing is published, or unmasked by an exemption, which ends."""

    facts: KeyFacts
    item: Mapping[str, Any]
    rows: "pa.Table | None"

    @property
    def listing(self) -> dict[str, Any]:
        if self.facts.current is None or self.rows is None:
            return {"key": self.facts.key, "revision": None}
        known = self.item["properties"]
        return {
            "key": self.facts.key,
            "revision": self.facts.current.revision,
            "content_hash": self.facts.current.content_hash,
            "inputs_hash": known["kfm:inputs_hash"],
            "policy": known["kfm:policy"],
            "gates": known.get("kfm:gates", {}),
            "rows": self.facts.current.rows,
        }


def write(services: Services, dataset: Dataset, keys: Sequence[str], writer: str) -> dict[str, str]:
    """Makes the table show the current revision of each key. Returns what prevented it, by key. Branches have the name
    of the writer."""
    with writing(services, dataset, lock_seconds=TICK_LOCK_SECONDS if writer == TICK else LOCK_SECONDS):
        facts = _current_facts(services, keys)
        latest = latest_revisions(services.database, keys)
        stale = {key: one for key, one in facts.items() if not _is_in_table(one, latest.get(key))}
        problems: dict[str, str] = {}
        table = load_table(services, dataset)
        if table is None:  # what was published before it was declared
            outbox.request_all_published(services.database, Sink.TABLE, dataset.dataset, but=keys)
        for chunk in _chunks(stale):
            ready = _read_allowed(services, dataset, chunk, problems)
            if ready:
                table = _publish(services, dataset, table, ready, writer)
        forget_withdrawn(services, dataset, _withdrawn(services, facts))
        if table is not None:
            thin_out(table)
        return problems


def _current_facts(services: Services, keys: Sequence[str]) -> dict[str, KeyFacts]:
    with services.database.transaction() as connection:
        current = current_revisions(connection, list(keys))
    return load_facts(services.database, {key: current[key].txn if key in current else 0 for key in keys})


def _is_in_table(facts: KeyFacts, latest: TableRevision | None) -> bool:
    if facts.current is None:
        return latest is None or latest.revision is None
    return latest is not None and (latest.revision, latest.content_hash) == (
        facts.current.revision,
        facts.current.content_hash,
    )


def _chunks(stale: Mapping[str, KeyFacts]) -> Iterator[list[KeyFacts]]:
    """Yields keys to publish together: as many as fit into memory at once."""
    chunk: list[KeyFacts] = []
    size = 0
    for one in stale.values():
        rows = one.current.rows if one.current else 0
        if chunk and size + rows > ROWS_PER_COMMIT:
            yield chunk
            chunk, size = [], 0
        chunk.append(one)
        size += rows
    if chunk:
        yield chunk


def _read_allowed(
    services: Services, dataset: Dataset, chunk: Sequence[KeyFacts], problems: dict[str, str]
) -> dict[str, KeyRows]:
    """Returns the rows of keys that are published and green, and adds to `problems` what is wrong with others."""
    layout = Layout(dataset.pipeline)
    items = {one.key: layout.item(one.key) for one in chunk}
    contents = {one.key: layout.content(one.current.content_hash) for one in chunk if one.current}
    files = services.store.read_all([*items.values(), *contents.values()])
    ready = {}
    for one in chunk:
        try:
            ready[one.key] = _read_key(dataset, one, files.get(items[one.key]), files.get(contents.get(one.key, "")))
        except KfmError as error:
            problems[one.key] = str(error)
    return ready


def _read_key(dataset: Dataset, facts: KeyFacts, item: bytes | None, data: bytes | None) -> KeyRows:
    """Refuses what readers of the catalog do not see, and what the gates have not passed as it is."""
    key, current = facts.key, facts.current
    if current is None:
        return KeyRows(facts, {}, None)
    if item is None or data is None:
        raise ObjectMissing(f"{key}: its Item or its data is not in the store")
    if sha256(item) != current.item_hash or sha256(data) != current.content_hash:
        raise IntegrityBroken(f"{key}: its Item or its data is not what was published")
    require_green(key, facts.verdicts, TABLE_GATES, current.content_hash)
    require_green(key, facts.verdicts, RELEASE_GATES, staged_release(facts).digest, CareRefused)
    document = json.loads(item)
    return KeyRows(facts, document, None if is_exempted(document) else rows_of_key(dataset, facts, data))


def _publish(
    services: Services, dataset: Dataset, table: "Table | None", ready: Mapping[str, KeyRows], writer: str
) -> "Table":
    import pyarrow as pa

    with translated_errors():
        if table is None:
            location = f"{warehouse_root(services)}/{table_folder(dataset.pipeline)}"
            table = create_table(open_catalog(services), dataset, table_name(dataset), location)
        tables = [one.rows for one in ready.values() if one.rows is not None]
        rows = pa.concat_tables(tables, promote_options="default") if tables else None
        if rows is not None:
            table = evolve(services, dataset, table, rows.schema)
        facts = {key: one.facts for key, one in ready.items()}
        listing = _listing(services, dataset, table, ready)
        write_rows = partial(_write, facts, rows, listing)
        return commit_to(services, dataset, table, Purpose(writer, facts), write_rows)


def _listing(services: Services, dataset: Dataset, table: "Table", ready: Mapping[str, KeyRows]) -> dict[str, Any]:
    with services.database.transaction() as connection:
        versions = versions_of(connection, dataset.dataset)
    return {
        "dataset": dataset.dataset,
        "schema_version": versions[-1].version if versions else None,
        "keys": [one.listing for one in ready.values()],
    }


def _write(
    facts: Mapping[str, KeyFacts],
    rows: "pa.Table | None",
    listing: Mapping[str, Any],
    table: "Table",
    branch: str,
) -> None:
    """Replaces the rows of these keys on the branch, and compares what it has then with what is published."""
    data = json.dumps(listing, indent=1, sort_keys=True).encode()
    location = f"{table.location()}/metadata/{branch}.json"
    with table.io.new_output(location).create() as file:
        file.write(data)
    summary = {
        "kfm.schema-version": str(listing["schema_version"]),
        "kfm.key-count": str(len(facts)),
        KEYS_FILE: location,
        f"{KEYS_FILE}-sha256": sha256(data),
    }
    if len(facts) <= LISTED_KEYS:
        summary["kfm.keys"] = json.dumps(listing["keys"], sort_keys=True)
    matching = rows_of(_windows(facts))
    if rows is None or not len(rows):
        table.delete(matching, snapshot_properties=summary, branch=branch)
    else:
        table.overwrite(rows, overwrite_filter=matching, snapshot_properties=summary, branch=branch)
    audit(table, branch, facts, rows)


def audit(table: "Table", branch: str, facts: Mapping[str, KeyFacts], rows: "pa.Table | None") -> None:
    """Raises IntegrityBroken unless the branch has exactly these rows of these keys."""
    found = table.scan(rows_of(_windows(facts))).use_ref(branch).to_arrow()
    expected = len(rows) if rows is not None else 0
    if len(found) != expected:
        raise IntegrityBroken(f"the table has {len(found)} rows of what has {expected}")
    if rows is not None and digest_of_rows(found, rows.column_names) != digest_of_rows(rows, rows.column_names):
        raise IntegrityBroken("the table has other rows than what is published")


def _windows(facts: Mapping[str, KeyFacts]) -> dict[str, datetime | None]:
    return {key: one.window[0] for key, one in facts.items()}


def _withdrawn(services: Services, facts: Mapping[str, KeyFacts]) -> dict[str, list[str]]:
    current = {key: one.current.content_hash for key, one in facts.items() if one.current}
    with services.database.transaction() as connection:
        return find_withdrawn_contents(connection, current)
