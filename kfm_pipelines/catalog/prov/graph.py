"""The provenance of many releases put together as N-Quads: a named graph for each document, called by its digest.

So what stands in it can be held against the document it is from; and all of it, or a part, can be asked in SPARQL. It
is compressed by pyarrow, whose version is pinned, so that the same releases give the same file everywhere.
"""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kfm_pipelines.catalog.prov.document import data_id
from kfm_pipelines.catalog.prov.jsonld import PREFIXES, triples
from kfm_pipelines.errors import QueryRefused

if TYPE_CHECKING:
    from rdflib import Dataset as RdfDataset
    from rdflib.plugins.sparql.sparql import Query
    from rdflib.query import Result

_REMOTE_CLAUSES = {
    "ServiceGraphPattern": "SERVICE",
    "DatasetClause": "FROM",
}  # what makes the library open a connection
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
    """The lines of one document, in order."""
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
    """The lines again, without having all of them in memory at once."""
    import pyarrow as pa

    rest = b""
    with pa.CompressedInputStream(pa.BufferReader(graph), "gzip") as stream:
        while block := stream.read(1 << 20):
            *whole, rest = (rest + block).split(b"\n")
            yield from (line.decode() for line in whole)


def find_lines_sharing(graph: bytes, addresses: Iterable[str]) -> list[str]:
    """The lines of all documents that tell of something at one of these addresses. Found without reading the whole
    graph into memory, which takes a minute where there are ten thousand releases."""
    wanted = {f"<{address}>" for address in addresses}
    documents = set()
    for line in decompress_lines(graph):
        if _ADDRESS in line and (parts := _QUAD.match(line)) and parts[3] in wanted:
            documents.add(parts[4])
    return [line for line in decompress_lines(graph) if (parts := _QUAD.match(line)) and parts[4] in documents]


def load_quads(lines: Iterable[str]) -> "RdfDataset":
    """As a graph that SPARQL can be asked of; without naming a graph, all of them are meant."""
    from rdflib import Dataset as RdfDataset

    dataset = RdfDataset(default_union=True)
    dataset.parse(data="\n".join(lines) + "\n", format="nquads")
    return dataset


def prepare_query(query: str) -> "Query":
    """QueryRefused for what is no query, and for one that reaches for another address than the graph's."""
    from rdflib.plugins.sparql.algebra import translateQuery
    from rdflib.plugins.sparql.parser import parseQuery

    try:
        parsed = parseQuery(query)
        reaching = sorted(_REMOTE_CLAUSES[part] for part in _part_names(parsed) if part in _REMOTE_CLAUSES)
        translated = translateQuery(parsed, initNs=PREFIXES)
    except Exception as error:  # noqa: BLE001 - the library has no class for what is wrong with a query
        raise QueryRefused(f"that is no SPARQL query: {str(error)[:200]}") from None
    if reaching:
        raise QueryRefused(f"only the graph itself is asked, so {reaching[0]} cannot be in a query; GRAPH can")
    return translated


def run_query(dataset: "RdfDataset", query: str) -> list[dict[str, Any]]:
    """The answer's rows; of a question for yes or no one row with `answer`, of a graph its triples. QueryRefused where
    there can be no answer."""
    question = prepare_query(query)
    try:
        return _rows(dataset.query(question))
    except Exception as error:  # noqa: BLE001 - an expression that cannot be computed, such as a broken pattern
        raise QueryRefused(f"that query cannot be answered: {str(error)[:200]}") from None


def _part_names(parsed: Any) -> Iterator[str]:
    """The names of everything a query is made of, however deep."""
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
    names = [str(name) for name in result.vars or ()]
    return [_row(names, row) for row in result]


def _row(names: list[str], row: Any) -> dict[str, Any]:
    found = {name: row[name] for name in names}
    return {name: None if value is None else value.toPython() for name, value in found.items()}
