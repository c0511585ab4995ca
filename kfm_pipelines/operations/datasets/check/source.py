"""Reads YAML together with the line of every field."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from kfm_pipelines.declarations.faults import FieldPath
from kfm_pipelines.operations.datasets.check.problem import Problem, format_path


@dataclass(frozen=True, slots=True)
class DeclarationText:
    """A file as it was written. `lines` has the line of every field that is there."""

    path: Path
    document: Any
    lines: dict[FieldPath, int]

    def line_of(self, path: FieldPath) -> int | None:
        """Returns the line of this field, or of the innermost section around it that is there."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)

    def problem(self, path: FieldPath, message: str) -> Problem:
        field = format_path(path)
        for start in (f"{field}: ", f"{path[0]}: " if path else ""):  # sentences that name it themselves
            message = message.removeprefix(start)
        return Problem(self.path.name, self.line_of(path), field, message)

    def warning(self, path: FieldPath, message: str) -> Problem:
        return replace(self.problem(path, message), severity="warning")


def read_source(path: Path) -> tuple[DeclarationText | None, list[Problem]]:
    """Returns no source if the file is not YAML."""
    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        document = yaml.safe_load(text)
    except OSError as error:
        return None, [Problem(path.name, None, "", f"cannot be read: {error.strerror}")]
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        return None, [Problem(path.name, line, "", "is not YAML: it is not text in UTF-8")]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        return None, [Problem(path.name, mark.line + 1 if mark else None, "", f"is not YAML: {what}")]
    except (yaml.YAMLError, ValueError) as error:
        return None, [Problem(path.name, None, "", f"is not YAML: {' '.join(str(error).split())}")]
    source = DeclarationText(path, document, dict(_lines(node, ())) if node else {(): 1})
    return source, list(_repeated_fields(source, node, ()))


def _lines(node: yaml.Node, path: FieldPath) -> Iterator[tuple[FieldPath, int]]:
    yield path, node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _lines(value, (*path, str(key.value)))
            yield (*path, str(key.value)), key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for place, value in enumerate(node.value):
            yield from _lines(value, (*path, place))


def _repeated_fields(source: DeclarationText, node: yaml.Node | None, path: FieldPath) -> Iterator[Problem]:
    """Of a field that is there twice YAML takes the last, silently."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in seen:
                line, field = key.start_mark.line + 1, format_path((*path, name))
                yield Problem(source.path.name, line, field, "is there twice")
            seen.add(name)
            yield from _repeated_fields(source, value, (*path, name))
    elif isinstance(node, yaml.SequenceNode):
        for place, value in enumerate(node.value):
            yield from _repeated_fields(source, value, (*path, place))
