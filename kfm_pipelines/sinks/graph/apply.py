"""Changes the graph in one transaction until it shows exactly what some keys contribute."""

from collections.abc import Iterable, Mapping, Sequence

from kfm_pipelines.sinks.graph import statements
from kfm_pipelines.sinks.graph.client import Row, Run
from kfm_pipelines.sinks.graph.compare import Delta, by_label, compare, read_derivations, read_present
from kfm_pipelines.sinks.graph.model import OWN_LABELS, GraphFacts, Kind, Label, Node, Relation

ROWS = 5_000  # in one statement


def show(run: Run, keys: Sequence[str], wanted: GraphFacts) -> None:
    """Makes the graph show `wanted` of these keys and nothing else of them, whatever it showed before."""
    present = read_present(run, keys, wanted)
    if delta := compare(wanted, present):
        _change(run, delta)
    _change(run, read_derivations(run, keys))
    _drop_announcements(run, wanted, present)
    left = {one.target for one in present.relations if one not in wanted.relations}
    _drop_orphans(run, left | {one for one in present.nodes if one not in wanted.nodes})


def _change(run: Run, delta: Delta) -> None:
    for label, ids in by_label(delta.drop_nodes).items():
        _run_in_parts(run, statements.delete_nodes(label), ids=ids)
    rest = [one for one in delta.drop_relations if one.source not in delta.drop_nodes]
    for shape, rows in _by_shape((one, {}) for one in rest).items():
        _run_in_parts(run, statements.delete_relations(*shape), rows=rows)
    nodes: dict[Label, list[Row]] = {}
    for node, properties in delta.set_nodes.items():
        nodes.setdefault(node.label, []).append({"id": node.id, "properties": properties})
    for label, rows in nodes.items():
        _run_in_parts(run, statements.merge_nodes(label), rows=rows)
    for shape, rows in _by_shape(delta.set_relations.items()).items():
        _run_in_parts(run, statements.merge_relations(*shape), rows=rows)


def _run_in_parts(run: Run, statement: str, **values: Sequence[object]) -> None:
    """Runs the statement over parts that fit into a message: ArcadeDB takes 16 MB."""
    [(name, rows)] = values.items()
    for start in range(0, len(rows), ROWS):
        run(statement, **{name: rows[start : start + ROWS]})


def _drop_announcements(run: Run, wanted: GraphFacts, present: GraphFacts) -> None:
    """Drops what messages announced if no activity has used them about that any more."""
    suspects: list[tuple[Relation, dict[str, object]]] = [
        (Relation(Kind.ANNOUNCED, one.target, Node(label, name)), {})
        for one in present.relations
        if one.kind is Kind.USED and one.target.label is Label.MESSAGE
        for name in sorted(_about(present, one) - _about(wanted, one))
        for label in (Label.SOURCE_OBJECT, Label.DISTRIBUTION)
    ]
    for (kind, source, target), rows in _by_shape(suspects).items():
        if unsupported := run(statements.unsupported_announcements(target), rows=rows):
            run(statements.delete_relations(kind, source, target), rows=unsupported)


def _about(facts: GraphFacts, one: Relation) -> set[str]:
    about = facts.relations.get(one, {}).get("about", [])
    return set(about) if isinstance(about, list) else set()


def _drop_orphans(run: Run, candidates: Iterable[Node]) -> None:
    shared = {one for one in candidates if one.label not in OWN_LABELS}
    for label, ids in by_label(sorted(shared)).items():
        run(statements.delete_orphans(label), ids=ids)


def _by_shape(
    relations: Iterable[tuple[Relation, Mapping[str, object]]],
) -> dict[tuple[Kind, Label, Label], list[Row]]:
    found: dict[tuple[Kind, Label, Label], list[Row]] = {}
    for one, properties in relations:
        row = {"source": one.source.id, "target": one.target.id, "properties": properties}
        found.setdefault((one.kind, one.source.label, one.target.label), []).append(row)
    return found
