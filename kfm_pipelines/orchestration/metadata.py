"""Tables, places and pictures in the form that Dagster's pages show them."""

import base64
from urllib.parse import unquote, urlsplit

import dagster as dg

from kfm_pipelines.declarations import Column, Table


def column_schema(table: Table) -> dg.TableSchema:
    return dg.TableSchema([_column(column, table) for column in table.columns])


def location_metadata(store_url: str, path: str) -> dg.MetadataValue:
    """A link where a browser can follow it; elsewhere what other programs open, with a button that copies it."""
    address = f"{store_url}/{path}"
    parts = urlsplit(address)
    if parts.scheme in ("http", "https"):
        return dg.MetadataValue.url(address)
    return dg.MetadataValue.path(unquote(parts.path) if parts.scheme == "file" else address)


def image_metadata(png: bytes, caption: str) -> dg.MarkdownMetadataValue:
    return dg.MetadataValue.md(f"![{caption}](data:image/png;base64,{base64.b64encode(png).decode()})")


def _column(column: Column, table: Table) -> dg.TableColumn:
    unit = f", in {column.unit}" if column.unit else ""
    return dg.TableColumn(
        column.name,
        column.type,
        description=f"{column.description}{unit}",
        constraints=dg.TableColumnConstraints(
            nullable=column.nullable, unique=table.primary_key == [column.name], other=[]
        ),
    )
