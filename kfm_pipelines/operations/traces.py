"""Where an error came from, fit to be kept: files, lines and functions, never values or absolute paths."""

import traceback
from pathlib import Path

FRAMES = 20


def trace_of(error: BaseException) -> str:
    """One line a frame, the innermost last; what is not ours is named by its library's file alone."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    return "\n".join(f"{_short(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames)


def _short(filename: str) -> str:
    parts = Path(filename).parts
    return "/".join(parts[parts.index("kfm_pipelines") :]) if "kfm_pipelines" in parts else parts[-1]
