"""What a dataset's declaration may say, piece by piece.

Belongs here: each piece and whether it makes sense by itself. Does not: whether the pieces, or several declarations,
agree (`datasets`).
"""

from kfm_pipelines.declarations.canary import Canary, Tolerance
from kfm_pipelines.declarations.concurrency import Concurrency, PrefixLimit
from kfm_pipelines.declarations.identity import Extent, KeyTemplate, Licence, Provider, Sovereignty
from kfm_pipelines.declarations.inputs import EventTemplate, Input
from kfm_pipelines.declarations.quality import (
    NeighbourTolerance,
    NullLimits,
    Quality,
    QualitySeverity,
    Range,
    RowCountLimits,
    RowCountTolerance,
    Statistic,
)
from kfm_pipelines.declarations.tables import Column, Table, TransformName
from kfm_pipelines.declarations.timeliness import DueRule, Duration, LateRule, ServiceLevel, Watermark
from kfm_pipelines.declarations.words import (
    EVENT_SOURCE,
    ColumnName,
    ColumnType,
    DeclarationModel,
    KeyPart,
    LocationRole,
    NonEmptyText,
    Owner,
    Tag,
    WindowLength,
)

__all__ = [
    "EVENT_SOURCE",
    "Canary",
    "Column",
    "ColumnName",
    "ColumnType",
    "Concurrency",
    "DeclarationModel",
    "DueRule",
    "Duration",
    "EventTemplate",
    "Extent",
    "Input",
    "KeyPart",
    "KeyTemplate",
    "LateRule",
    "Licence",
    "LocationRole",
    "NeighbourTolerance",
    "NonEmptyText",
    "NullLimits",
    "Owner",
    "PrefixLimit",
    "Provider",
    "Quality",
    "QualitySeverity",
    "Range",
    "RowCountLimits",
    "RowCountTolerance",
    "ServiceLevel",
    "Sovereignty",
    "Statistic",
    "Table",
    "Tag",
    "Tolerance",
    "TransformName",
    "Watermark",
    "WindowLength",
]  # fmt: skip
