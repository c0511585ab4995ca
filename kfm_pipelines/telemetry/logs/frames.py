"""Where an error came from, fit to be kept: files, lines and functions, never values or absolute paths."""

import traceback
from pathlib import Path

MAX_FRAMES = 20


def format_traceback(error: BaseException) -> str:
    """One line a frame, the innermost last; what is not ours is named by its library's file alone."""
    return "\n".join(format_frames(error))


def format_frames(error: BaseException) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    return [format_frame(frame.filename, frame.lineno, frame.name) for frame in frames]


def format_frame(filename: str, line: int | str | None, function: str) -> str:
    return f"{_shorten_path(filename)}:{line} {function}"


def _shorten_path(filename: str) -> str:
    parts = Path(filename).parts
    if "kfm_pipelines" in parts:
        return "/".join(parts[parts.index("kfm_pipelines") :])
    return parts[-1] if parts else "?"


__all__ = ["format_traceback"]
