"""The Cypher of the sink: only what Neo4j 5 and ArcadeDB 26.10 both understand.

Where they differ: each has its own procedures for schema and statistics, so the schema is read by SHOW; ArcadeDB has
neither full-text indexes nor CREATE DATABASE, and does not enforce read transactions. Labels and kinds come from the
enumerations in `model`, since Cypher takes no parameter there; every value is a parameter.
"""

from kfm_pipelines.sinks.graph.model import OWN_LABELS, Kind, Label

# Nothing refers to a shared node any more when none of these lead to it.
_REFERENCES = "|".join(kind for kind in Kind if kind is not Kind.ANNOUNCED)

# Name and statement of each constraint and index; by id everything is merged, by the others it is looked for.
SCHEMA = {
    **{
        f"kfm_{label.name.lower()}_id": "CREATE CONSTRAINT {name} IF NOT EXISTS"
        f" FOR (n:{label}) REQUIRE n.id IS UNIQUE"
        for label in Label
    },
    **{
        f"kfm_{label.name.lower()}_{name}": f"CREATE INDEX {{name}} IF NOT EXISTS FOR (n:{label}) ON (n.{name})"
        for label, name in (
            *((label, "key") for label in (*OWN_LABELS, Label.KEY)),
            (Label.SOURCE_OBJECT, "address"),
            (Label.PLACE, "name"),
        )
    },
}
SCHEMA_NAMES = ("SHOW CONSTRAINTS", "SHOW INDEXES")

_START = {
    **{label: f"UNWIND $keys AS key MATCH (n:{label} {{key: key}})" for label in OWN_LABELS},
    Label.KEY: "UNWIND $keys AS key MATCH (n:Key {key: key})",
}


def own_nodes(label: Label) -> str:
    return f"{_START[label]} RETURN n.id AS id, properties(n) AS properties"


def own_relations(label: Label) -> str:
    return (
        f"{_START[label]}-[r]->(m) RETURN n.id AS source, type(r) AS kind, properties(r) AS properties,"
        " labels(m)[0] AS label, m.id AS target"
    )


def shared_nodes(label: Label) -> str:
    return f"UNWIND $ids AS id MATCH (n:{label} {{id: id}}) RETURN n.id AS id, properties(n) AS properties"


ANNOUNCEMENTS = (
    "UNWIND $ids AS id MATCH (n:Message {id: id})-[r:ANNOUNCED]->(m)"
    " RETURN n.id AS source, type(r) AS kind, properties(r) AS properties, labels(m)[0] AS label, m.id AS target"
)


def merge_nodes(label: Label) -> str:
    return f"UNWIND $rows AS row MERGE (n:{label} {{id: row.id}}) SET n = row.properties"


def merge_relations(kind: Kind, source: Label, target: Label) -> str:
    return (
        f"UNWIND $rows AS row MATCH (a:{source} {{id: row.source}}) MATCH (b:{target} {{id: row.target}})"
        f" MERGE (a)-[r:{kind}]->(b) SET r = row.properties"
    )


def delete_nodes(label: Label) -> str:
    return f"UNWIND $ids AS id MATCH (n:{label} {{id: id}}) DETACH DELETE n"


def delete_relations(kind: Kind, source: Label, target: Label) -> str:
    return (
        f"UNWIND $rows AS row MATCH (a:{source} {{id: row.source}})-[r:{kind}]->(b:{target} {{id: row.target}})"
        " DELETE r"
    )


def delete_orphans(label: Label) -> str:
    return f"UNWIND $ids AS id MATCH (n:{label} {{id: id}}) WHERE NOT (n)<-[:{_REFERENCES}]-() DETACH DELETE n"


def unsupported_announcements(target: Label) -> str:
    """Finds those of `rows` that no activity supports, by having used the message about this object."""
    return (
        f"UNWIND $rows AS row MATCH (m:Message {{id: row.source}})-[r:ANNOUNCED]->(o:{target} {{id: row.target}})"
        " OPTIONAL MATCH (m)<-[u:USED]-() WHERE o.id IN u.about"
        " WITH m, o, count(u) AS supports WHERE supports = 0 RETURN m.id AS source, o.id AS target"
    )


# A revision was derived from each revision of the key it used that has the data it used.
_DERIVED = "RETURN DISTINCT d.id AS source, u.id AS target"
DERIVATIONS_WANTED = (
    "UNWIND $keys AS key MATCH (d:Revision {key: key})-[w:WAS_DERIVED_FROM]->(:Key)<-[:IS_VERSION_OF]-(u:Revision)"
    f" WHERE u.content_sha256 = w.content_sha256 {_DERIVED}",
    "UNWIND $keys AS key MATCH (u:Revision {key: key})-[:IS_VERSION_OF]->(:Key)<-[w:WAS_DERIVED_FROM]-(d:Revision)"
    f" WHERE u.content_sha256 = w.content_sha256 {_DERIVED}",
)
DERIVATIONS_PRESENT = (
    f"UNWIND $keys AS key MATCH (d:Revision {{key: key}})-[:WAS_DERIVED_FROM]->(u:Revision) {_DERIVED}",
    f"UNWIND $keys AS key MATCH (u:Revision {{key: key}})<-[:WAS_DERIVED_FROM]-(d:Revision) {_DERIVED}",
)


BATCH = 1000  # nodes deleted in one transaction: a server with little memory holds what it deletes


def count_nodes(label: Label) -> str:
    return f"MATCH (n:{label}) RETURN count(n) AS nodes"


def known_keys(label: Label) -> str:
    return f"MATCH (n:{label}) RETURN DISTINCT n.key AS key"


def sweep_orphans(label: Label) -> str:
    """Deletes some of the nodes that nothing refers to."""
    return (
        f"MATCH (n:{label}) WHERE NOT (n)<-[:{_REFERENCES}]-() WITH n LIMIT {BATCH}"
        " DETACH DELETE n RETURN count(*) AS deleted"
    )


def sweep_announcements(target: Label) -> str:
    return (
        f"MATCH (m:Message)-[r:ANNOUNCED]->(o:{target}) OPTIONAL MATCH (m)<-[u:USED]-() WHERE o.id IN u.about"
        f" WITH r, count(u) AS supports WHERE supports = 0 WITH r LIMIT {BATCH} DELETE r RETURN count(*) AS deleted"
    )
