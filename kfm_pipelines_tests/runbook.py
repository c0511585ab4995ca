"""Reads a runbook: its commands in order, and what it says each of them answers."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

FENCE = "```"
EXIT_CODE = "exit code "
ANYTHING = "…"
PLACEHOLDERS = ("LETTER", "OTHER", "KEY", "REDRIVE", "DIGEST", "MINE", "TOMORROW", "EXEMPTION", "EVENT", "REPLAY")


@dataclass
class Step:
    """One command as the page writes it, and the phrases below it."""

    command: str
    phrases: list[str] = field(default_factory=list)
    code: int = 0

    def arguments(self, names: Mapping[str, str]) -> list[str]:
        [_, *words] = shlex.split(replaced(self.command, names))
        return words


def steps_of(page: str) -> list[Step]:
    """Every command of the page. A line that is neither a command nor an answer is an error, so that none can hide."""
    steps: list[Step] = []
    inside = False
    for line in page.splitlines():
        if line.startswith(FENCE):
            inside = not inside
        elif not inside:
            assert not line.lstrip(" $#").startswith("kfm "), f"a command outside a block: {line!r}"
        elif line.startswith("kfm "):
            steps.append(Step(line))
        else:
            assert line.startswith("  "), f"neither a command nor what one says: {line!r}"
            _add_answer(steps[-1], line.strip())
    assert not inside, "a block without end"
    return steps


def mentioned(page: str) -> set[str]:
    """Commands inside sentences."""
    return set(re.findall(r"`(kfm [^`]*)`", page))


def replaced(text: str, names: Mapping[str, str]) -> str:
    """The text with every placeholder filled in; one that the page made up is an error."""
    for name in re.findall(r"\b[A-Z]{3,}\b", re.sub(r'"[^"]*"', "", text)):
        assert name in PLACEHOLDERS or name in ANSWERS, f"nobody knows what {name} stands for in {text!r}"
    return re.sub(rf"\b({'|'.join(PLACEHOLDERS)})\b", lambda found: names[found[0]], text)


# Words in capitals that the program itself says.
ANSWERS = ("APPLIED", "FAILED", "KILLED", "SKIPPED", "WRONG")


def says(text: str, phrase: str, names: Mapping[str, str]) -> bool:
    parts = [re.escape(part) for part in replaced(phrase, names).split(ANYTHING)]
    return re.search(".*".join(parts), text) is not None


def _add_answer(step: Step, answer: str) -> None:
    if answer.startswith(EXIT_CODE):
        step.code = int(answer.removeprefix(EXIT_CODE))
    else:
        step.phrases.append(answer)
