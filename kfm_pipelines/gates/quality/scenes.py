"""A rule about scenes: how much of them may be under clouds."""

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from kfm_pipelines.gates.verdict import Finding, Rule, TableSubject, count_true, error, format_sample

if TYPE_CHECKING:
    import pyarrow as pa

CLOUD_COVER = "cloud_cover"


def _check_cloud_cover(subject: TableSubject) -> Iterator[Finding]:
    """A scene whose clouds nobody has counted is taken."""
    scene = subject.dataset.scene
    if scene is None:
        return
    import pyarrow.compute as pc

    covers = _covers(subject)
    cloudier = pc.greater(covers, scene.cloud_cover)
    if count := count_true(cloudier):
        measured = f"{count} of {len(covers)} scenes with more, up to {pc.max(covers).as_py():g} %"
        sample = format_sample(subject, cloudier, CLOUD_COVER) if CLOUD_COVER in subject.table.column_names else ""
        yield error("cloud-cover", CLOUD_COVER, f"clouds over at most {scene.cloud_cover:g} %", measured, sample)


def _covers(subject: TableSubject) -> "pa.ChunkedArray | pa.Array":
    """Returns the share of each scene in per cent: of the rows, or of the Item where the table has the cells of one
    scene."""
    import pyarrow as pa

    if CLOUD_COVER in subject.table.column_names:
        return subject.table.column(CLOUD_COVER)
    stated = subject.attachments.properties if subject.attachments is not None else {}
    return pa.array([stated["eo:cloud_cover"]] if "eo:cloud_cover" in stated else [], pa.float64())


_CLOUDS = "Nothing needs to be done if such scenes are not wanted; otherwise declare a higher scene.cloud_cover."
CLOUDS = Rule("cloud-cover", _check_cloud_cover, _CLOUDS, attrgetter("dataset.scene"))
