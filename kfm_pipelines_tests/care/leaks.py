"""The leak scanner: plant canaries in what goes in, then look for them, in any form, in every byte that came out.

A canary's coordinates need digits that nothing else has by chance, and its texts at least six letters. What is searched
is searched as it is and unpacked, as deep as it is packed.
"""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psycopg
from psycopg import sql

from kfm_pipelines_tests.care import leak_containers, leak_encodings, leak_tables
from kfm_pipelines_tests.care.leak_forms import Needle, grids, needles_of_point, needles_of_text
from kfm_pipelines_tests.care.leak_search import Search

DEEPEST = 4
NEAR_DEGREES, NEAR_METRES = 0.0005, 50.0


@dataclass(frozen=True, slots=True)
class Canary:
    """A value that must not come out: a place, and names and numbers that stand for it."""

    longitude: float
    latitude: float
    texts: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for degrees in (self.longitude, self.latitude):
            if (
                int(abs(degrees) * 1000) % 10 == 0
                or round(abs(degrees) * 1000) % 10 == 0
                or round(degrees, 4) == degrees
            ):
                raise ValueError("a canary's coordinates need five digits or more, the third of them not zero")
        if any(len(text) < 6 for text in self.texts + self.ids):
            raise ValueError("a canary's texts and ids need six letters or more")

    @property
    def needles(self) -> Iterator[Needle]:
        yield from needles_of_point(self.longitude, self.latitude)
        for text in self.texts + self.ids:
            yield from needles_of_text(text)

    @property
    def pairs(self) -> Iterator[tuple[float, float, float]]:
        """The place as two numbers that go together, and how near is too near."""
        yield self.longitude, self.latitude, NEAR_DEGREES
        for grid in grids(self.longitude, self.latitude):
            yield grid.easting, grid.northing, NEAR_METRES


@dataclass(frozen=True, slots=True)
class Hit:
    """Where a canary was found. `canary` is its number, so that a failing test does not spread what it found."""

    name: str
    canary: int
    form: str
    offset: int = field(compare=False)


class Scanner:
    def __init__(self, canaries: Collection[Canary]) -> None:
        self._canaries = tuple(canaries)
        needles = [(number, needle) for number, canary in enumerate(self._canaries) for needle in canary.needles]
        self._exact = Search((number, needle) for number, needle in needles if not needle.folded)
        self._folded = Search((number, needle) for number, needle in needles if needle.folded)

    def scan(self, name: str, data: bytes) -> list[Hit]:
        """Each canary once for every form and place it was found in."""
        return list(dict.fromkeys(self._scanned(name, data, DEEPEST)))

    def scan_parquet(self, name: str, data: bytes) -> list[Hit]:
        """The bytes of the file, and everything in it unpacked; `scan` does the same for bytes that begin like one."""
        return list(dict.fromkeys([*self.scan(name, data), *self._in_table(name, data, DEEPEST)]))

    def scan_tree(self, root: Path, exclude: Collection[Path] = ()) -> list[Hit]:
        """Names and contents of everything below root, but for what is below an excluded folder."""
        hits: list[Hit] = []
        for path in sorted(root.rglob("*")):
            if any(path.is_relative_to(excluded) for excluded in exclude):
                continue
            name = str(path.relative_to(root))
            hits += self.scan(f"name of {name}", os.fsencode(name))
            if path.is_symlink():
                hits += self.scan(f"link {name}", os.fsencode(path.readlink()))
            elif path.is_file():
                hits += self.scan(name, path.read_bytes())
        return hits

    def scan_postgres(self, url: str) -> list[Hit]:
        """Every table of every schema, large objects, and what the planner remembers of values."""
        hits: list[Hit] = []
        with psycopg.connect(url) as connection:
            for schema, table in _tables(connection):
                name = f"{schema}.{table}"
                data = _copied(connection, sql.Identifier(schema, table))
                hits += self.scan(name, data) + self.scan(f"name of {name}", name.encode())
        return list(dict.fromkeys(hits))

    def _scanned(self, name: str, data: bytes, depth: int) -> Iterator[Hit]:
        for search, searched in ((self._exact, data), (self._folded, data.lower())):
            for found in search(searched):
                yield Hit(name, found.number, found.form, found.offset)
        if depth == 0:
            return
        if data.startswith(b"PAR1"):
            yield from self._in_table(name, data, depth)
        for packing, part in (*leak_containers.parts(data), *leak_encodings.decoded(data)):
            if part:
                yield from self._scanned(f"{name} > {packing}", part, depth - 1)

    def _in_table(self, name: str, data: bytes, depth: int) -> Iterator[Hit]:
        for what, part in leak_tables.unpacked(data):
            yield from self._scanned(f"{name} > {what}", part, depth - 1)
        columns = leak_tables.number_columns(data)
        for number, canary in enumerate(self._canaries):
            for x, y, near in canary.pairs:
                xs = [np.abs(column - x) < near for column in columns]
                ys = [np.abs(column - y) < near for column in columns]
                if any(np.any(one & other) for one in xs for other in ys):
                    yield Hit(f"{name} > two columns", number, "near", 0)


def _tables(connection: "psycopg.Connection[tuple[str, str]]") -> list[tuple[str, str]]:
    rows = connection.execute(
        """
        SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'm', 'S') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
        ORDER BY 1, 2
        """
    ).fetchall()
    return [*rows, ("pg_catalog", "pg_stats"), ("pg_catalog", "pg_largeobject")]


def _copied(connection: "psycopg.Connection[tuple[str, str]]", table: sql.Identifier) -> bytes:
    statement = sql.SQL("COPY (SELECT * FROM {}) TO STDOUT").format(table)
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        return b"".join(bytes(block) for block in copy)
