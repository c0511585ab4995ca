"""Dataset declarations: what a file in resources/datasets/ may contain, section by section, and loading it."""

from kfm_pipelines.declarations.identity import Extent, Sovereignty
from kfm_pipelines.declarations.quality import NullLimits, Quality, Range, RowCountTolerance, Statistic, Tolerance
from kfm_pipelines.declarations.tables import Column, Table, TransformName
from kfm_pipelines.declarations.timeliness import Concurrency, DueRule, Duration, LateRule, PrefixLimit, Watermark
from kfm_pipelines.declarations.words import ColumnName, DeclarationModel, KeyPart, NonEmptyText, WindowLength

__all__ = [
    "Column", "ColumnName", "Concurrency", "DeclarationModel", "DueRule", "Duration", "Extent", "KeyPart", "LateRule",
    "NonEmptyText", "NullLimits", "PrefixLimit", "Quality", "Range", "RowCountTolerance", "Sovereignty", "Statistic",
    "Table", "Tolerance", "TransformName", "Watermark", "WindowLength",
]  # fmt: skip
