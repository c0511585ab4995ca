"""The auto-update message, version 1.x: a producer names the dataset, the asset and the granule it covers."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kfm_pipelines.events.contracts import check_contract, check_major_version
from kfm_pipelines.events.identity import auto_update_identity
from kfm_pipelines.events.notice import ObjectNotice, normalise_etag, read_asset_uri
from kfm_pipelines.text import read_timestamp


def matches(document: Mapping[str, object]) -> bool:
    return "asset_uri" in document or "content_etag" in document


def read(document: Mapping[str, Any]) -> tuple[ObjectNotice, ...]:
    check_major_version("schema_version", document.get("schema_version"), supported=1)
    check_contract("auto-update-v1", document)
    bucket, object_key = read_asset_uri(document["asset_uri"])
    notice = ObjectNotice(
        shape="auto-update",
        identity=auto_update_identity(document["dataset"], document["asset_uri"], document["content_etag"]),
        bucket=bucket,
        object_key=object_key,
        etag=normalise_etag(document["content_etag"]),
        event_time=read_timestamp(document["event_time"]),
        dataset=document["dataset"],
        granule_start=_optional_timestamp(document.get("granule_start")),
        granule_end=_optional_timestamp(document.get("granule_end")),
        priority=document.get("priority", "normal"),
    )
    return (notice,)


def _optional_timestamp(text: str | None) -> datetime | None:
    return None if text is None else read_timestamp(text)
