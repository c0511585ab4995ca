"""Reads metadata documents of scenes: JSON and XML, without entities, references or surprises of size."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.text import quote_value, read_utc

MAX_XML_DEPTH = 64


def read_json(data: bytes, name: str) -> "Fields":
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise InputUnreadable(f"{name} is not a JSON document") from None
    if not isinstance(document, dict):
        raise InputUnreadable(f"{name} must be a JSON object, not {quote_value(document)}")
    return Fields(document, name)


def read_xml(data: bytes, name: str) -> Element:
    """Returns the root; names of elements are without their prefixes. Refuses a document type, because it may define
    entities that expand without end or name files and hosts."""
    builder, parser = TreeBuilder(), expat.ParserCreate()
    depth = 0

    def refuse(*_: object) -> NoReturn:
        raise InputUnreadable(f"{name} has a document type or entities, which metadata of scenes have not")

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_XML_DEPTH:
            raise InputUnreadable(f"{name} is nested more than {MAX_XML_DEPTH} deep")
        builder.start(_without_prefix(tag), attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(_without_prefix(tag))

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, ValueError, LookupError):
        raise InputUnreadable(f"{name} is not an XML document") from None
    return builder.close()


def fields_of(element: Element, name: str) -> "Fields":
    """Returns an element whose children are groups of named texts, as the metadata of Landsat are."""
    groups: dict[str, Any] = {}
    for group in element:
        groups[group.tag] = {one.tag: (one.text or "").strip() for one in group}
    return Fields(groups, name)


def _without_prefix(tag: str) -> str:
    return tag.rpartition(":")[2]


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object whose fields are read by their path, such as `IMAGE_ATTRIBUTES.CLOUD_COVER`."""

    document: Mapping[str, Any]
    name: str  # of the document, in refusals

    def find(self, path: str) -> Any:
        value: Any = self.document
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def text(self, path: str) -> str:
        found = self.find(path)
        if not isinstance(found, str) or not found.strip():
            raise InputUnreadable(f"{self.name}: {path} must be a text, not {quote_value(found)}")
        return found.strip()

    def number(self, path: str) -> float:
        found = self.optional_number(path)
        if found is None:
            raise InputUnreadable(f"{self.name}: {path} is missing")
        return found

    def optional_number(self, path: str) -> float | None:
        found = self.find(path)
        return None if found is None else self._convert(path, found, finite, "a number")

    def whole_number(self, path: str) -> int:
        return int(self._convert(path, self.find(path), int, "a whole number"))

    def time(self, path: str) -> datetime:
        return read_time(self.text(path), f"{self.name}: {path}")

    def _convert(self, path: str, found: Any, convert: Callable[[Any], float], what: str) -> float:
        try:
            if isinstance(found, str | int | float) and not isinstance(found, bool):
                return convert(found)
        except (ValueError, OverflowError):
            pass
        raise InputUnreadable(f"{self.name}: {path} must be {what}, not {quote_value(found)}")


def read_time(text: str, name: str) -> datetime:
    try:
        return read_utc(text)
    except ValueError as error:
        raise InputUnreadable(f"{name}: {error}") from None


def finite(value: str | float) -> float:
    """Raises ValueError for what is no number, NaN and infinity."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("is not finite")
    return number
