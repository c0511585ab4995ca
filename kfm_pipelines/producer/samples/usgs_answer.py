"""Streamflow as the water services of the USGS answer in JSON, both ends of the hour included; all is invented."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from kfm_pipelines.events.canonical_key import window_of
from kfm_pipelines.producer.samples.streamflow import GAUGES, READING_INTERVAL, Gauge, Reading, reading_of

NO_VALUE = -999999.0
DISCHARGE, HEIGHT, TEMPERATURE = "00060", "00065", "00010"
_UNITS = {DISCHARGE: "ft3/s", HEIGHT: "ft", TEMPERATURE: "deg C"}
_CENTRAL = timezone(timedelta(hours=-6))  # as the USGS writes times of Kansas in winter


def usgs_answer(window_start: datetime, *, seed: int = 0, approved: bool = False) -> tuple[str, bytes]:
    """Returns the answer for an hour. Approved readings have passed review; others have the qualifiers of the sample.
    Some gauges measure the temperature of the water too, which was not asked for."""
    start = window_of(window_start, "hour").start
    instants = [start + step * READING_INTERVAL for step in range(5)]
    series = [one for gauge in GAUGES for one in _series_of(gauge, instants, seed, approved)]
    name = f"usgs/streamflow/{start:%Y/%m/%d/%H}/answer-{start:%Y%m%dT%H}Z.json"
    document = {"name": "ns1:timeSeriesResponseType", "value": {"queryInfo": {}, "timeSeries": series}}
    return name, json.dumps(document).encode()


def _series_of(gauge: Gauge, instants: Sequence[datetime], seed: int, approved: bool) -> Iterator[dict[str, Any]]:
    readings = [(instant, reading_of(gauge, instant, seed)) for instant in instants]
    values = [(at, one.discharge_cfs, _qualifiers(one, approved)) for at, one in readings]
    yield _series(gauge, DISCHARGE, values)
    heights = [(at, one.gage_height_ft, _qualifiers(one, approved)[:1]) for at, one in readings]
    yield _series(gauge, HEIGHT, [one for one in heights if one[1] is not None])
    if gauge.base_cfs > 1000:
        yield _series(gauge, TEMPERATURE, [(at, 4.5, ["P"]) for at in instants])


def _qualifiers(reading: Reading, approved: bool) -> list[str]:
    """A flow is estimated without a height, and missing under ice."""
    status = "A" if approved or reading.qualifier == "A" else "P"
    return [
        status,
        *(["e"] if reading.gage_height_ft is None else []),
        *(["Ice"] if reading.discharge_cfs is None else []),
    ]


def _series(gauge: Gauge, code: str, values: Sequence[tuple[datetime, float | None, list[str]]]) -> dict[str, Any]:
    place = {"srs": "EPSG:4326", "latitude": gauge.latitude, "longitude": gauge.longitude}
    measured = [
        {
            "value": f"{NO_VALUE if value is None else value:.10g}",
            "qualifiers": qualifiers,
            "dateTime": at.astimezone(_CENTRAL).isoformat(timespec="milliseconds"),
        }
        for at, value, qualifiers in values
    ]
    return {
        "sourceInfo": {
            "siteName": gauge.name,
            "siteCode": [{"value": gauge.site_no, "network": "NWIS", "agencyCode": "USGS"}],
            "geoLocation": {"geogLocation": place, "localSiteXY": []},
        },
        "variable": {
            "variableCode": [{"value": code, "network": "NWIS"}],
            "unit": {"unitCode": _UNITS[code]},
            "noDataValue": NO_VALUE,
        },
        "values": [{"value": measured, "method": [{"methodDescription": "", "methodID": 0}]}],
        "name": f"USGS:{gauge.site_no}:{code}:00000",
    }
