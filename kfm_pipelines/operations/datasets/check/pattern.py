"""What an `object_pattern` can match: whether it fits its prefix, and an example of an object it takes.

Python's `re` tells neither, so the expression is read with its own parser.
"""

import re
import re._compiler as compiler  # type: ignore[import-not-found]
import re._constants as codes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Items = Sequence[tuple[Any, Any]]
MAX_REPEATS = 1024

_EXAMPLES = {"year": "2025", "month": "12", "day": "04", "hour": "03", "week": "49"}
_CHARACTERS = "a0_-./ 1bcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ23456789"


def can_begin_with(pattern: str, prefix: str) -> bool:
    """Whether the pattern can match a text that begins with the prefix."""
    return len(prefix) in _ends(parser.parse(pattern, re.ASCII), prefix, {0})


def example_of(pattern: str) -> str | None:
    """Returns a text that the pattern matches; None if none is found."""
    tree = parser.parse(pattern, re.ASCII)
    names = {number: name for name, number in tree.state.groupdict.items()}
    text = _write(tree, names, {})
    return text if re.fullmatch(pattern, text, re.ASCII) else None


def _ends(items: Items, text: str, starts: set[int]) -> set[int]:
    """Returns how far into the text the items can reach; its end also stands for everything beyond."""
    for operation, argument in items:
        starts = _STEPS.get(operation, _step_anything)(argument, text, starts)
    return starts


def _step_character(accepts: Callable[[str], bool], text: str, starts: set[int]) -> set[int]:
    end = len(text)
    return {at + 1 for at in starts if at < end and accepts(text[at])} | {at for at in starts if at == end}


def _step_repeat(argument: Any, text: str, starts: set[int]) -> set[int]:
    least, most, inner = argument
    reached = set(starts) if least == 0 else set()
    for count in range(1, min(int(most), MAX_REPEATS) + 1):
        starts = _ends(inner, text, starts)
        before = set(reached)
        if count >= least:
            reached |= starts
        if not starts or (count >= least and reached == before):
            break
    return reached


def _step_branch(argument: Any, text: str, starts: set[int]) -> set[int]:
    return {end for branch in argument[1] for end in _ends(branch, text, starts)}


def _step_anything(_argument: Any, text: str, starts: set[int]) -> set[int]:
    """Of references to groups and look-arounds nothing is known."""
    return {end for at in starts for end in range(at, len(text) + 1)}


def _matches(node: Any) -> Callable[[str], bool]:
    """Returns whether a character matches a node that stands for one character."""
    compiled = compiler.compile(parser.SubPattern(parser.State(), [node]), re.ASCII)
    return lambda character: compiled.fullmatch(character) is not None


_STEPS: Mapping[Any, Callable[[Any, str, set[int]], set[int]]] = {
    codes.LITERAL: lambda value, text, starts: _step_character(lambda one: ord(one) == value, text, starts),
    codes.NOT_LITERAL: lambda value, text, starts: _step_character(lambda one: ord(one) != value, text, starts),
    codes.ANY: lambda _, text, starts: _step_character(lambda one: one != "\n", text, starts),
    codes.IN: lambda value, text, starts: _step_character(_matches((codes.IN, value)), text, starts),
    codes.MAX_REPEAT: _step_repeat,
    codes.MIN_REPEAT: _step_repeat,
    codes.POSSESSIVE_REPEAT: _step_repeat,
    codes.SUBPATTERN: lambda value, text, starts: _ends(value[3], text, starts),
    codes.ATOMIC_GROUP: _ends,
    codes.BRANCH: _step_branch,
    codes.AT: lambda _, text, starts: starts,
}


def _write(items: Items, names: Mapping[int, str], written: dict[int, str]) -> str:
    return "".join(_write_item(operation, argument, names, written) for operation, argument in items)


def _write_item(operation: Any, argument: Any, names: Mapping[int, str], written: dict[int, str]) -> str:
    text = ""
    if operation is codes.LITERAL:
        text = chr(argument)
    elif operation in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
        text = _write(argument[2], names, written) * int(argument[0])
    elif operation is codes.SUBPATTERN:
        text = _EXAMPLES.get(names.get(argument[0], "")) or _write(argument[3], names, written)
        written[argument[0]] = text
    elif operation is codes.GROUPREF:
        text = written.get(argument, "")
    elif operation is codes.BRANCH:
        text = _write(argument[1][0], names, written)
    elif operation in (codes.IN, codes.NOT_LITERAL, codes.ANY):
        text = next(filter(_matches((operation, argument)), _CHARACTERS), "")
    return text
