"""Merges provenance into N-Quads, a graph per document, and queries it. The same releases give the same bytes."""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from kfm_pipelines.catalog.prov.constraints import triples
from kfm_pipelines.catalog.prov.document import PREFIXES, data_id
from kfm_pipelines.errors import QueryRefused

if TYPE_CHECKING:
    from rdflib import Dataset as RdfDataset
    from rdflib.plugins.sparql.sparql import Query
    from rdflib.query import Result

_REMOTE_CLAUSES = {"ServiceGraphPattern": "SERVICE", "DatasetClause": "FROM"}  # these make rdflib open a connection
_ADDRESS = f"<{PREFIXES['prov']}specializationOf>"
_QUAD = re.compile(r"^(<[^>]*>) (<[^>]*>) (.*) (<[^>]*>) \.$")
SOURCES_QUERY = """
SELECT DISTINCT ?address ?object ?version ?etag ?sha256 ?hmac ?message WHERE {
    ?object a kfm:Object ; prov:specializationOf ?address . ?message a kfm:Message ; dcterms:references ?object .
    OPTIONAL { ?object kfm:versionId ?version } OPTIONAL { ?object kfm:etag ?etag }
    OPTIONAL { ?object kfm:sha256 ?sha256 } OPTIONAL { ?object kfm:hmacSha256 ?hmac }
} ORDER BY ?address ?object ?message
"""
STAGES_QUERY = """
SELECT ?activity ?kind ?agent ?plan WHERE {
    { SELECT ?activity (COUNT(?before) AS ?place) WHERE { ?activity prov:wasInformedBy* ?before } GROUP BY ?activity }
    ?activity a prov:Activity, ?kind . FILTER (?kind != prov:Activity)
    ?activity prov:wasAssociatedWith / rdfs:label ?agent .
    OPTIONAL {
        ?activity prov:qualifiedAssociation ?how . ?how prov:agent / rdfs:label ?agent ; prov:hadPlan / rdfs:label ?plan
    }
} ORDER BY ?place ?agent
"""
SHARING_QUERY = """
SELECT DISTINCT ?address ?key ?data WHERE { GRAPH ?document {
    ?release a kfm:Release ; dcterms:identifier ?key ; prov:hadMember ?data .
    ?data prov:wasDerivedFrom+ / prov:specializationOf ?address .
} } ORDER BY ?address ?key ?data
"""


def quads(document: bytes, digest: str) -> list[str]:
    graph = f"<{PREFIXES['kfm']}{data_id(digest).removeprefix('kfm:')}>"
    return sorted({f"{' '.join(triple)} {graph} ." for triple in triples(document)})


def compress_lines(lines: Iterable[str]) -> bytes:
    import pyarrow as pa

    target = pa.BufferOutputStream()
    with pa.CompressedOutputStream(target, "gzip") as stream:
        for line in lines:
            stream.write(f"{line}\n".encode())
    return bytes(target.getvalue())


def decompress_lines(graph: bytes) -> Iterator[str]:
    """Yields the lines without holding all of them in memory."""
    import pyarrow as pa

    rest = b""
    with pa.CompressedInputStream(pa.BufferReader(graph), "gzip") as stream:
        while block := stream.read(1 << 20):
            *whole, rest = (rest + block).split(b"\n")
            yield from (line.decode() for line in whole)


def find_lines_sharing(graph: bytes, addresses: Iterable[str]) -> list[str]:
    """Returns the lines of documents with an object at one of these addresses, without loading all of it."""
    wanted = {f"<{address}>" for address in addresses}
    documents = set()
    for line in decompress_lines(graph):
        if _ADDRESS in line and (parts := _QUAD.match(line)) and parts[3] in wanted:
            documents.add(parts[4])
    return [line for line in decompress_lines(graph) if (parts := _QUAD.match(line)) and parts[4] in documents]


def load_quads(lines: Iterable[str]) -> "RdfDataset":
    """Returns a dataset that SPARQL can query; a query that names no graph sees all of them."""
    from rdflib import Dataset as RdfDataset

    dataset = RdfDataset(default_union=True)
    dataset.parse(data="\n".join(lines) + "\n", format="nquads")
    return dataset


def prepare_query(query: str) -> "Query":
    """Raises QueryRefused for text that is no SPARQL query, and for queries that would open a connection."""
    from rdflib.plugins.sparql.algebra import translateQuery
    from rdflib.plugins.sparql.parser import parseQuery

    try:
        parsed = parseQuery(query)
        remote = sorted(_REMOTE_CLAUSES[part] for part in _part_names(parsed) if part in _REMOTE_CLAUSES)
        translated = translateQuery(parsed, initNs=PREFIXES)
    except Exception as error:  # noqa: BLE001 - the library has no class for invalid queries
        raise QueryRefused(f"that is no SPARQL query: {str(error)[:200]}") from None
    if remote:
        raise QueryRefused(f"queries can read only this graph, so {remote[0]} is not allowed; use GRAPH")
    return translated


def run_query(dataset: "RdfDataset", query: str) -> list[dict[str, Any]]:
    """Returns rows of a SELECT, `answer` of an ASK, or triples of a CONSTRUCT. Raises QueryRefused if it fails."""
    question = prepare_query(query)
    try:
        return _rows(dataset.query(question))
    except Exception as error:  # noqa: BLE001 - for example a broken regular expression
        raise QueryRefused(f"that query cannot be answered: {str(error)[:200]}") from None


def _part_names(parsed: Any) -> Iterator[str]:
    from rdflib.plugins.sparql.parserutils import CompValue

    if isinstance(parsed, CompValue):
        yield parsed.name
        parsed = parsed.values()
    if isinstance(parsed, Iterable) and not isinstance(parsed, str):
        for part in parsed:
            yield from _part_names(part)


def _rows(result: "Result") -> list[dict[str, Any]]:
    if result.type == "ASK":
        return [{"answer": bool(result.askAnswer)}]
    if result.type != "SELECT":
        return [dict(zip(("subject", "predicate", "object"), map(str, row), strict=True)) for row in result]  # type: ignore[arg-type]
    names, rows = [str(name) for name in result.vars or ()], cast(Iterable[Any], result)
    return [{name: None if row[name] is None else row[name].toPython() for name in names} for row in rows]
