"""What one check found, and what to do about it when it is wrong."""

from dataclasses import dataclass

FIX = "run `kfm doctor --fix`, or create it as you create the rest of your infrastructure"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    ok: bool
    found: str
    remedy: str = ""
