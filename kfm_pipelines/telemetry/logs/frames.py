"""Where an error came from, fit to be kept: files, lines and functions, never values or absolute paths."""

import traceback
from pathlib import Path

FRAMES = 20


def trace_of(error: BaseException) -> str:
    """One line a frame, the innermost last; what is not ours is named by its library's file alone."""
    return "\n".join(frames_of(error))


def frames_of(error: BaseException) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    return [frame_told(frame.filename, frame.lineno, frame.name) for frame in frames]


def frame_told(filename: str, line: int | str | None, function: str) -> str:
    return f"{_short(filename)}:{line} {function}"


def _short(filename: str) -> str:
    parts = Path(filename).parts
    if "kfm_pipelines" in parts:
        return "/".join(parts[parts.index("kfm_pipelines") :])
    return parts[-1] if parts else "?"


__all__ = ["trace_of"]
