"""The canonical key `{source}:{aoi}:{h3_res}:{time_window}:{transform_version}`, the one name of a logical run.

It names the WAL record, the outputs, the lineage nodes and the Dagster partition. How it is derived from an event is
versioned: a change here moves every key, so it needs a new KEY_DERIVATION_VERSION and a changelog note.
"""

import re
from dataclasses import dataclass
from typing import Self

from kfm_pipelines.errors import KeyInvalid
from kfm_pipelines.text import quote_value

KEY_DERIVATION_VERSION = 1

# No dot: it breaks Dagster's partition selector. No slash, so a key is always one path segment.
_PART = re.compile(r"[A-Za-z0-9_-]+")
_H3_RES = re.compile(r"none|[0-9]|1[0-5]")


@dataclass(frozen=True, slots=True)
class CanonicalKey:
    """Five parts, each checked: a value of this class always writes and reads back as the same text."""

    source: str
    aoi: str
    h3_res: str
    time_window: str
    transform_version: str

    def __post_init__(self) -> None:
        for name, part in zip(self.__slots__, self._parts(), strict=True):
            if not _PART.fullmatch(part):
                raise KeyInvalid(f"key part {name} must be letters, digits, _ or -, not {quote_value(part)}")
        if not _H3_RES.fullmatch(self.h3_res):
            raise KeyInvalid(f"key part h3_res must be none or 0 to 15, not {quote_value(self.h3_res)}")

    def __str__(self) -> str:
        return ":".join(self._parts())

    def _parts(self) -> tuple[str, ...]:
        # By hand: dataclasses.astuple copies each part in depth, and this is done for every event.
        return (self.source, self.aoi, self.h3_res, self.time_window, self.transform_version)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a key; KeyInvalid names the part that is wrong."""
        parts = text.split(":")
        if len(parts) != 5:
            raise KeyInvalid(
                f"key {quote_value(text)} has {len(parts)} parts; five are needed: "
                "source:aoi:h3_res:time_window:transform_version"
            )
        return cls(*parts)
