"""Where an error came from, for those who keep it; logs tell it the same way."""

from kfm_pipelines.telemetry.frames import trace_of

__all__ = ["trace_of"]
