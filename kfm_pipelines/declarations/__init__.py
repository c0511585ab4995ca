"""What a dataset's declaration may say, piece by piece.

Belongs here: each piece and whether it makes sense by itself. Does not: whether the pieces, or several declarations,
agree (`datasets`).
"""

from kfm_pipelines.declarations.canary import Canary, Tolerance
from kfm_pipelines.declarations.concurrency import Concurrency, PrefixLimit
from kfm_pipelines.declarations.identity import Extent, KeyTemplate, Licence, Provider, Sovereignty
from kfm_pipelines.declarations.inputs import EventTemplate, Input
from kfm_pipelines.declarations.quality import Blame, Change, Neighbours, Nulls, Quality, Range, Rows, Statistic
from kfm_pipelines.declarations.tables import Column, Table, TransformName
from kfm_pipelines.declarations.timeliness import Due, Duration, LateRule, ServiceLevel, Watermark
from kfm_pipelines.declarations.words import (
    EVENT_SOURCE,
    ColumnName,
    ColumnType,
    Declared,
    KeyPart,
    Owner,
    Tag,
    Whereabouts,
    WindowLength,
    Words,
)

__all__ = [
    "EVENT_SOURCE", "Blame", "Canary", "Change", "Column", "ColumnName", "ColumnType", "Concurrency", "Declared",
    "Due", "Duration", "EventTemplate", "Extent", "Input", "KeyPart", "KeyTemplate", "LateRule", "Licence",
    "Neighbours", "Nulls", "Owner", "PrefixLimit", "Provider", "Quality", "Range", "Rows",
    "ServiceLevel", "Sovereignty", "Statistic", "Table", "Tag", "Tolerance", "TransformName", "Watermark",
    "Whereabouts", "WindowLength", "Words",
]  # fmt: skip
