"""A case: the published table, its source and the policy, with rows assigned to rules. Nothing is checked here."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.rules import GeometryKind, Rule
from kfm_pipelines.care.verifier.evidence import Evidence, EvidenceUnreadable, read_document, read_table
from kfm_pipelines.care.verifier.origins import KINDS, Origins, classes_of, read_origins
from kfm_pipelines.care.verifier.protected_values import ProtectedPlaces, protected_places, protected_texts
from kfm_pipelines.care.verifier.search.cells import Cells, read_cells
from kfm_pipelines.care.verifier.search.distinct import distinct
from kfm_pipelines.care.verifier.search.phrases import Phrases
from kfm_pipelines.care.verifier.types import Flags, Floats, Numbers
from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.parquet.distinct_values import EncodedColumn, encode_column
from kfm_pipelines.parquet.parquet import flatten

BOXES = "bbox"


@dataclass(frozen=True, eq=False)
class RuleScope:
    """What one rule covers: positions in the original, in the published table and in the crosswalk."""

    sensitivity: str
    kind: GeometryKind
    rule: Rule
    rows: Numbers
    records: Numbers
    link_rows: Numbers
    link_records: Numbers

    @property
    def name(self) -> str:
        return f"{self.sensitivity} {self.kind}s"

    @cached_property
    def link_positions(self) -> Numbers:
        """The position in `records` of each link's record."""
        return np.searchsorted(self.records, self.link_records)


@dataclass(frozen=True, eq=False)
class Case:
    policy: Policy
    dataset: Dataset
    evidence: Evidence
    footer: pq.FileMetaData
    schema: pa.Schema  # of the published file
    published: pa.Table
    origins: Origins
    crosswalk: pa.Table
    item: Mapping[str, Any]
    documents: tuple[object, ...]
    rewritten: "Future[bytes]"
    boxes: pa.StructArray | None = None  # of the published shapes, which the writer adds for features
    _floats: dict[str, Floats] = field(default_factory=dict)
    _encoded: dict[str, EncodedColumn] = field(default_factory=dict)

    @property
    def k(self) -> int:
        return self.policy.minimum_count

    @property
    def longitude(self) -> str | None:
        return self.dataset.table.longitude_column

    @property
    def latitude(self) -> str | None:
        return self.dataset.table.latitude_column

    @property
    def geometry(self) -> str | None:
        return self.dataset.table.geometry_column

    @cached_property
    def link_rows(self) -> Numbers:
        rows: Numbers = self.crosswalk.column("row").to_numpy()
        return rows

    @cached_property
    def link_records(self) -> Numbers:
        """Positions from 0; records are numbered from 1."""
        records: Numbers = self.crosswalk.column("record").to_numpy() - 1
        return records

    @cached_property
    def record_classes(self) -> npt.NDArray[np.int32]:
        return classes_of(self.policy, self.published)

    @cached_property
    def places(self) -> ProtectedPlaces:
        return protected_places(self.policy, self.dataset, self.origins)

    @cached_property
    def cells(self) -> Cells:
        return read_cells(self.encoded("cell"))

    @cached_property
    def placed(self) -> Flags:
        """Flags records with any value in a place column."""
        names = [name for name in ("cell", self.longitude, self.latitude, self.geometry, "uncertainty_m") if name]
        some: Flags = np.any([self.published.column(name).is_valid().to_numpy() for name in names], axis=0)
        return some

    @cached_property
    def protected_phrases(self) -> Phrases:
        return protected_texts(self.policy, self.dataset, self.origins, self.cells.names)

    @cached_property
    def scopes(self) -> tuple[RuleScope, ...]:
        return tuple(self._build_scopes())

    def values(self, name: str, positions: Numbers) -> pa.Array:
        return flatten(self.published.column(name).take(_indices(positions)))

    def floats(self, name: str, positions: Numbers) -> Floats:
        """Returns a published column of numbers, NaN for null."""
        if name not in self._floats:
            self._floats[name] = self.published.column(name).to_numpy().astype("float64", copy=False)
        return self._floats[name][positions]

    def encoded(self, name: str) -> EncodedColumn:
        """Returns a published column of texts or geometries."""
        if name not in self._encoded:
            self._encoded[name] = encode_column(self.published.column(name))
        return self._encoded[name]

    def original_values(self, name: str, positions: Numbers) -> pa.Array:
        return flatten(self.origins.table.column(name).take(_indices(positions)))

    def original_floats(self, name: str, positions: Numbers) -> Floats:
        values: Floats = self.origins.table.column(name).to_numpy()[positions].astype("float64", copy=False)
        return values

    def in_extent(self, one: float, other: float) -> bool:
        """Whether two numbers may be a place of the dataset, in either order and with or without signs."""
        extent = self.dataset.extent
        if extent is None:
            return True
        (west, east), (south, north) = (
            _absolute_range(extent.west, extent.east),
            _absolute_range(extent.south, extent.north),
        )
        return any(west <= abs(x) <= east and south <= abs(y) <= north for x, y in ((one, other), (other, one)))

    def _build_scopes(self) -> Iterator[RuleScope]:
        for place, (sensitivity, rules) in enumerate(self.policy.classes.items()):
            for kind, rule in rules.rules.items():
                mine = (self.origins.classes == place) & (self.origins.kinds == KINDS.index(kind))
                links = mine[self.link_rows]
                records = self.link_records[links]
                yield RuleScope(
                    sensitivity, kind, rule, np.flatnonzero(mine), distinct(records), self.link_rows[links], records
                )


def open_case(
    policy: Policy, dataset: Dataset, evidence: Evidence, item: Mapping[str, Any], executor: Executor
) -> Case:
    rewritten = executor.submit(evidence.rewrite)  # needed last
    published, schema, footer = read_table(evidence.data, "data", encoded=True)
    boxes: pa.StructArray | None = None
    if dataset.processor == "vector":
        published, schema, boxes = _split_boxes(published, schema)
    original, declared, _ = read_table(evidence.original, "original", encoded=True)
    crosswalk, _, _ = read_table(evidence.crosswalk, "crosswalk")
    return Case(
        policy,
        dataset,
        evidence,
        footer,
        schema,
        published,
        read_origins(policy, dataset, original, declared),
        _check_crosswalk(crosswalk),
        item,
        tuple(read_document(document) for document in (*evidence.documents.values(), *evidence.records.values())),
        rewritten,
        boxes,
    )


def _split_boxes(published: pa.Table, schema: pa.Schema) -> tuple[pa.Table, pa.Schema, pa.StructArray]:
    """Takes the boxes of shapes out of the table, because they are no column of the dataset."""
    edges = pa.struct([pa.field(edge, pa.float64(), nullable=False) for edge in ("xmin", "ymin", "xmax", "ymax")])
    if published.column_names.count(BOXES) != 1 or schema.field(BOXES).type != edges:
        raise EvidenceUnreadable("data", f"a column {BOXES} with the box of each shape", "none")
    place = schema.get_field_index(BOXES)
    column = published.column(BOXES).combine_chunks()
    boxes = column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)
    return published.remove_column(place), schema.remove(place), boxes


def _check_crosswalk(crosswalk: pa.Table) -> pa.Table:
    expected = {"row": pa.int64(), "record": pa.int64()}
    if {field.name: field.type for field in crosswalk.schema} != expected or crosswalk.num_columns != 2:
        raise EvidenceUnreadable("crosswalk", "the columns row and record")
    if any(column.null_count for column in crosswalk.columns):
        raise EvidenceUnreadable("crosswalk", "no nulls", "nulls")
    return crosswalk


def _absolute_range(lowest: float, highest: float) -> tuple[float, float]:
    """Returns the range of absolute values between the two."""
    least = 0.0 if lowest < 0 < highest else min(abs(lowest), abs(highest))
    return least, max(abs(lowest), abs(highest))


def _indices(positions: Numbers) -> pa.Array:
    return pa.array(positions, pa.int64())
