"""One good message of every shape, made up here: what the tests change, wrap and compare."""

import json
from typing import Any

from kfm_pipelines.events.messages import (
    auto_update,
    fifo_envelope,
    s3_envelope,
    s3_notification,
    s3_removal,
    sns_wrapped,
)
from kfm_pipelines_tests.events.given import KEY_AT_03, NOON

TOPIC = "arn:aws:sns:us-east-1:123456789012:kfm-ingest"
EVENT_ID = "019aec2b-7600-7abc-8def-0123456789ab"
SOURCE = "kfm.hydrology.gauge-refresh"


def eventbridge(
    bucket: str,
    object_key: str,
    stored: dict[str, Any],
    kind: str = "Object Created",
    deletion_type: str | None = None,
) -> dict[str, Any]:
    detail = {"version": "0", "bucket": {"name": bucket}, "object": {"key": object_key} | stored, "reason": "PutObject"}
    return {
        "version": "0",
        "id": "17793124-05d4-b198-2fde-7ededc63b103",
        "detail-type": kind,
        "source": "aws.s3",
        "account": "123456789012",
        "time": "2025-12-04T12:00:00Z",
        "region": "us-east-1",
        "resources": [f"arn:aws:s3:::{bucket}"],
        "detail": detail | ({"deletion-type": deletion_type} if deletion_type else {}),
    }


def wrapped(document: object) -> dict[str, Any]:
    return sns_wrapped(json.dumps(document), TOPIC, "m-1", NOON)


S3 = s3_notification("kfm-ingest", KEY_AT_03, "abc", 10, "v1", NOON, "00AB")
REMOVAL = s3_removal("kfm-ingest", KEY_AT_03, "v1", NOON, "00AC")
EVENTBRIDGE = eventbridge("kfm-ingest", KEY_AT_03, {"etag": "abc", "size": 10, "version-id": "v1", "sequencer": "00AB"})
EVENTBRIDGE_REMOVAL = eventbridge(
    "kfm-ingest", KEY_AT_03, {"version-id": "v1", "sequencer": "00AC"}, "Object Deleted", "Permanently Deleted"
)
S3_ENVELOPE = s3_envelope("kfm-ingest", KEY_AT_03, "abc", 10, "v1", NOON, EVENT_ID) | {"idempotency_key": "<sha256>"}
AUTO_UPDATE = auto_update("usgs/streamflow", f"s3://kfm-ingest/{KEY_AT_03}", "abc", NOON, NOON, NOON)
FIFO = fifo_envelope(EVENT_ID, SOURCE, NOON, {"basin": "kansas", "gauge": 6892350}, "gauges-2025-12-04T12Z")
FIFO_S3 = fifo_envelope(EVENT_ID, SOURCE, NOON, S3, "gauges-2025-12-04T12Z")
NEXRAD = {
    "S3Bucket": "unidata-nexrad-level2-chunks",
    "Key": "KTWX/117/20251204-031500-001-S",
    "SiteID": "KTWX",
    "DateTime": "2025-12-04T03:15:00",
    "VolumeID": "117",
    "ChunkID": "1",
    "ChunkType": "S",
    "L2Version": "V06",
}
LANDSAT = {
    "landsat_product_id": "LC09_L2SP_028033_20251201_20251203_02_T1",
    "s3_location": "s3://usgs-landsat/collection02/level-2/standard/oli-tirs/2025/028/033/"
    "LC09_L2SP_028033_20251201_20251203_02_T1/",
}
SENTINEL_1 = {
    "id": "S1A_IW_GRDH_1SDV_20251204T003015_20251204T003040_062001_07C0FF_1A2B",
    "path": "GRD/2025/12/4/IW/DV/S1A_IW_GRDH_1SDV_20251204T003015_20251204T003040_062001_07C0FF_1A2B",
    "missionId": "S1A",
    "productType": "GRD",
    "mode": "IW",
    "polarization": "DV",
    "startTime": "2025-12-04T00:30:15",
    "stopTime": "2025-12-04T00:30:40",
    "absoluteOrbitNumber": 62001,
    "missionDataTakeId": 508159,
    "productUniqueIdentifier": "1A2B",
    "sciHubIngestion": "2025-12-04T02:11:30.000Z",
    "s3Ingestion": "2025-12-04T02:48:09.123Z",
    "sciHubId": "0f0e0d0c-0b0a-4908-8706-050403020100",
}
SENTINEL_2 = {
    "name": "S2B_MSIL1C_20251203T171629_N0511_R112_T14SQH_20251203T190012",
    "id": "00010203-0405-4607-8809-0a0b0c0d0e0f",
    "path": "products/2025/12/3/S2B_MSIL1C_20251203T171629_N0511_R112_T14SQH_20251203T190012",
    "timestamp": "2025-12-03T17:16:29.024Z",
    "datatakeIdentifier": "GS2B_20251203T171629_045001_N05.11",
    "sciHubIngestion": "2025-12-03T20:05:00.000Z",
    "s3Ingestion": "2025-12-03T20:31:12.500Z",
    "tiles": [
        {
            "path": f"tiles/14/S/{square}/2025/12/3/0",
            "timestamp": f"2025-12-03T17:{minute}:41.000Z",
            "utmZone": 14,
            "latitudeBand": "S",
            "gridSquare": square,
            "datastrip": {"id": "S2B_OPER_MSI_L1C_DS_2BPS_20251203T190012_S20251203T171624_N05.11"},
        }
        for square, minute in (("QH", 23), ("QJ", 24))
    ],
    "datastrips": [],
}
TEST_EVENT = {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "kfm-ingest"}

EVERY: dict[str, dict[str, Any]] = {
    "s3-notification": S3,
    "s3-removal": REMOVAL,
    "eventbridge": EVENTBRIDGE,
    "eventbridge-removal": EVENTBRIDGE_REMOVAL,
    "s3-envelope": S3_ENVELOPE,
    "auto-update": AUTO_UPDATE,
    "fifo-envelope": FIFO,
    "fifo-envelope-s3": FIFO_S3,
    "nexrad": NEXRAD,
    "landsat-c2": LANDSAT,
    "sentinel-1": SENTINEL_1,
    "sentinel-2": SENTINEL_2,
    "s3-test-event": TEST_EVENT,
    "sns": wrapped(S3),
}
