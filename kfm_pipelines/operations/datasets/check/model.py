"""Validates a document against the model of declarations and turns every mistake into a problem."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from kfm_pipelines.declarations import Column, Table
from kfm_pipelines.declarations.dataset import Dataset, format_mistake, mistakes_of
from kfm_pipelines.declarations.faults import Fault, Faults, FieldPath
from kfm_pipelines.declarations.words import ColumnType
from kfm_pipelines.operations.datasets.check.problem import Problem, did_you_mean
from kfm_pipelines.operations.datasets.check.source import DeclarationText


@dataclass(frozen=True, slots=True)
class ValidatedDocument:
    """A dataset, if there is no problem; else one with the sections that are right, and no others."""

    problems: tuple[Problem, ...]
    is_complete: bool
    dataset: Dataset


def validate(source: DeclarationText) -> ValidatedDocument:
    try:
        return ValidatedDocument((), is_complete=True, dataset=Dataset.model_validate(source.document))
    except ValidationError as error:
        mistakes = mistakes_of(error)
    document = source.document if isinstance(source.document, dict) else {}
    partial = _partial_dataset(document)
    faults = [fault for one in mistakes for fault in _faults_of(one)]
    faults += [*_faults_of_table(document.get("table")), *_faults_between_sections(partial)]
    found = dict.fromkeys((fault.path, fault.sentence) for fault in _without_consequences(faults))
    problems = (source.problem(path, sentence + _suggest_column(sentence)) for path, sentence in found)
    return ValidatedDocument(tuple(problems), is_complete=False, dataset=partial)


def _faults_of(mistake: ErrorDetails) -> Iterator[Fault]:
    path: FieldPath = mistake["loc"]
    raised = mistake.get("ctx", {}).get("error")
    if isinstance(raised, Faults):
        yield from (Fault(one.sentence, (*path, *one.path)) for one in raised.faults)
    elif mistake["type"] == "extra_forbidden":
        yield Fault("is not a field" + did_you_mean(path[-1], _fields_at(path[:-1])), path)
    elif mistake["type"] == "missing":
        yield Fault("is missing", path)
    elif mistake["type"] == "literal_error":
        allowed = re.findall(r"'([^']*)'", mistake["ctx"]["expected"])
        yield Fault(format_mistake(mistake) + did_you_mean(mistake["input"], allowed), path)
    else:
        yield Fault(format_mistake(mistake), path)


def _partial_dataset(document: Mapping[str, Any]) -> Dataset:
    valid = {name: value for name in Dataset.model_fields if (value := _validate_field(document, name)) is not _INVALID}
    if "table" not in valid and (table := _stand_in_table(document.get("table"))) is not None:
        valid["table"] = table
    partial = Dataset.model_construct(None, **{"product": None, **valid})  # otherwise it follows from the name
    for name in Dataset.model_fields.keys() - valid.keys():
        partial.__dict__.pop(name, None)  # a default would hide that it is wrong
    return partial


def _faults_between_sections(partial: Dataset) -> Iterator[Fault]:
    """Yields what the model does not get to while a section is wrong, from those that are right."""
    for check in Dataset.CHECKS:
        try:
            yield from check(partial)
        except ValueError as error:
            yield Fault(str(error))
        except (AttributeError, KeyError):  # it needs a section that is wrong
            continue


_INVALID = object()


def _validate_field(document: Mapping[str, Any], name: str) -> Any:
    field = Dataset.model_fields[name]
    if name not in document:
        return _INVALID if field.is_required() or field.default_factory else field.default
    try:
        return _adapter(name).validate_python(document[name], strict=True)
    except ValidationError:
        return _INVALID


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    field = Dataset.model_fields[name]
    return TypeAdapter(field.rebuild_annotation())


def _stand_in_table(document: object) -> Table | None:
    """Returns a table with what can be read of it; None if a reference to a column may mean one without a name."""
    given = document.get("columns") if isinstance(document, dict) else None
    if not isinstance(given, list) or not all(isinstance(one, dict) and "name" in one for one in given):
        return None
    assert isinstance(document, dict)  # noqa: S101 - for mypy
    values: dict[str, Any] = {"primary_key": [], "columns": [_stand_in(one) for one in given]}
    for name in Table.model_fields.keys() & document.keys() - {"columns"}:
        with suppress(ValidationError):
            values[name] = TypeAdapter(Table.model_fields[name].rebuild_annotation()).validate_python(document[name])
    return Table.model_construct(None, **values)


def _faults_of_table(document: object) -> Iterator[Fault]:
    table = _stand_in_table(document)
    for fault in table.faults() if table is not None else ():
        is_of_column = fault.path[:1] == ("columns",)
        if not is_of_column and not fault.sentence.endswith(_NO_TYPE):
            yield Fault(fault.sentence, ("table", *fault.path))


_NO_TYPE = "not None"


def _stand_in(given: dict[str, Any]) -> Column:
    kind = given.get("type") if given.get("type") in get_args(ColumnType) else None
    return Column.model_construct(None, **{"nullable": False, "description": "", **given, "type": kind})


def _without_consequences(faults: list[Fault]) -> list[Fault]:
    """Drops `licence is missing` beside `license is not a field; did you mean 'licence'?`."""
    meant = {
        (*fault.path[:-1], found[1])
        for fault in faults
        if (found := re.search(r"did you mean '(\w+)'", fault.sentence))
    }
    return [fault for fault in faults if not (fault.sentence == "is missing" and fault.path in meant)]


def _suggest_column(sentence: str) -> str:
    found = re.search(r"'(\w+)' is not one of the columns (.*)$", sentence)
    return did_you_mean(found[1], found[2].split(", ")) if found else ""


def _fields_at(path: FieldPath) -> list[str]:
    """Returns the names of the fields of a section."""
    schema = _schema()
    node: Any = schema
    for part in path:
        node = _step(node, part, schema)
    return sorted({name for one in _alternatives(node, schema) for name in one.get("properties", {})})


def _step(node: Any, part: str | int, schema: Any) -> Any:
    for one in _alternatives(node, schema):
        inner = one.get("items") if isinstance(part, int) else one.get("properties", {}).get(part)
        if inner is not None:
            return inner
    return {}


def _alternatives(node: Any, schema: Any) -> list[Any]:
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    return [inner for one in node["anyOf"] for inner in _alternatives(one, schema)] if "anyOf" in node else [node]


@cache
def _schema() -> Any:
    return Dataset.model_json_schema()
