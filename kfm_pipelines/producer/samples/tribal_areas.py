"""Drought by tribal area: files in the publisher's format, with invented nations and numbers."""

from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING

from kfm_pipelines.events.canonical_key import window_of
from kfm_pipelines.producer.samples.sample import seeded_random, to_parquet

if TYPE_CHECKING:
    import pyarrow as pa

NATIONS = "ABCDEFGHIJKLMNOP"
DROUGHT_CLASSES = ("D0", "D1", "D2", "D3", "D4")


@dataclass(frozen=True, slots=True)
class TribalArea:
    """A reservation, or its off-reservation trust land, which has the same GNIS number."""

    gnis: str
    name: str
    kind: str
    lsad: str
    square_metres: float


@dataclass(frozen=True, slots=True)
class DroughtShare:
    area: TribalArea
    drought_class: str
    percent: float


def tribal_areas_table(window_start: datetime, *, seed: int = 0) -> "pa.Table":
    """The map of the day that contains window_start, with the publisher's columns."""
    import pyarrow as pa

    day = window_of(window_start, "day").start.date()
    shares = [share for area in _areas(seed) for share in _shares(area, day, seed)]
    text, number = pa.string(), pa.float64()
    return pa.table(
        {
            "GNIS": pa.array([share.area.gnis for share in shares], text),
            "Name": pa.array([share.area.name for share in shares], text),
            "NameLSAD": pa.array([f"{share.area.name} {share.area.kind}" for share in shares], text),
            "LSAD": pa.array([share.area.lsad for share in shares], text),
            "Date": pa.array([day] * len(shares), pa.date32()),
            "USDM Class": pa.array([share.drought_class for share in shares], text),
            "Total Area (m^2)": pa.array([share.area.square_metres for share in shares], number),
            "USDM Class Area (m^2)": pa.array([s.area.square_metres * s.percent / 100 for s in shares], number),
            "USDM Class Area (%)": pa.array([share.percent for share in shares], number),
        }
    )


def tribal_areas_object(window_start: datetime, *, seed: int = 0) -> tuple[str, bytes]:
    day = window_of(window_start, "day").start
    key = f"drought/tribal-areas/{day:%Y/%m/%d}/USDM_{day:%Y-%m-%d}.parquet"
    return key, to_parquet(tribal_areas_table(day, seed=seed))


def _areas(seed: int) -> list[TribalArea]:
    areas: list[TribalArea] = []
    for place, letter in enumerate(NATIONS):
        chance = seeded_random("tribal-areas", seed, letter)
        gnis, name = f"9990{place:04d}", f"Example Nation {letter}"  # real numbers are far lower
        areas.append(TribalArea(gnis, name, "Reservation", "86", float(chance.randint(10**7, 10**9))))
        if place % 3 == 0:
            areas.append(
                TribalArea(gnis, name, "Off-Reservation Trust Land", "OT", float(chance.randint(10**5, 10**7)))
            )
    return areas


def _shares(area: TribalArea, day: date, seed: int) -> list[DroughtShare]:
    """Up to three adjacent classes, perhaps not the whole area; one alone may exceed 100 %, as in real files."""
    chance = seeded_random("tribal-areas", seed, area.gnis, area.lsad, day.isoformat())
    first, count = chance.randrange(len(DROUGHT_CLASSES)), chance.randint(0, 3)
    classes = DROUGHT_CLASSES[first : first + count]
    if len(classes) == 1 and chance.random() < 0.5:
        return [DroughtShare(area, classes[0], 100.001)]
    cuts = sorted(round(chance.uniform(1, 100), 6) for _ in classes)
    return [
        DroughtShare(area, drought, round(above - below, 6))
        for drought, below, above in zip(classes, [0.0, *cuts], cuts, strict=False)
        if above > below
    ]
