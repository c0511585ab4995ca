"""Reads messages of any accepted shape into one `IngestEvent` per object. Pure, but for the contract files."""

from kfm_pipelines.events.canonical_key import KEY_DERIVATION_VERSION, CanonicalKey, Window, parse_label, window_of
from kfm_pipelines.events.fold import IngestEvent, key_of, member_of_key, resolve_event, resolve_events
from kfm_pipelines.events.identity import body_identity
from kfm_pipelines.events.notice import Change, Notice, ObjectNotice, PayloadNotice, Priority
from kfm_pipelines.events.precedence import newest_per_object, superseded_identities
from kfm_pipelines.events.shapes.registry import normalise

__all__ = [
    "KEY_DERIVATION_VERSION", "CanonicalKey", "Change", "IngestEvent", "Notice", "ObjectNotice", "PayloadNotice",
    "Priority", "Window", "body_identity", "key_of", "member_of_key", "newest_per_object", "normalise", "parse_label",
    "resolve_event", "resolve_events", "superseded_identities", "window_of",
]  # fmt: skip
