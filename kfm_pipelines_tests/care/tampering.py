"""What a tampered release has to come to: exactly one rule's breach, told without a value of the data."""

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import shapely

from kfm_pipelines.care.verifier import Breach, Evidence, verify
from kfm_pipelines_tests.care.releases import Release, parquet, unparquet

Change = Callable[[Release], object]  # to the release, before it is written down
Forge = Callable[[Evidence], Evidence]  # to what was written


def breaches_of(release: Release, evidence: Evidence | None = None) -> tuple[Breach, ...]:
    """The verifier's, once it is sure that none of them quotes the data."""
    found = verify(release.policy, release.dataset, evidence or release.evidence())
    said = repr(found)
    for value in (value for row in release.rows for value in row.values()):
        assert not any(text in said for text in _spellings(value))
    return found


def rules_of(release: Release, evidence: Evidence | None = None) -> set[str]:
    return {breach.rule for breach in breaches_of(release, evidence)}


def on_data(change: Callable[[pa.Table], pa.Table]) -> Forge:
    return lambda evidence: replace(evidence, data=parquet(change(unparquet(evidence.data))))


def on_crosswalk(change: Callable[[pa.Table], pa.Table]) -> Forge:
    return lambda evidence: replace(evidence, crosswalk=parquet(change(unparquet(evidence.crosswalk))))


def before_footer(data: bytes, hidden: bytes) -> bytes:
    """Bytes no reader of Parquet would ever look at."""
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return data[:footer] + hidden + data[footer:]


def _spellings(value: object) -> list[str]:
    if isinstance(value, float) and value != round(value, 2):
        return [f"{value:.3f}", repr(value)]
    if isinstance(value, bytes):
        corners = shapely.get_coordinates(shapely.from_wkb(value)).ravel().tolist()
        return [f"{number:.3f}" for number in corners]
    return [value] if isinstance(value, str) and value not in ("open", "generalised", "restricted", "withheld") else []
