"""A refusal shows no places: whatever may be a coordinate is withheld, and what cannot be one stays readable."""

import pytest

from kfm_pipelines.text import quote_value, redact_coordinates


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ('{"lat":39.09973,"lon":-94.57857}', '{"lat":(withheld),"lon":(withheld)}'),
        ('{"lat": 39.09973, "lon": -94.57857}', '{"lat": (withheld), "lon": (withheld)}'),
        ('{"lat":"39.09973"}', '{"lat":"(withheld)"}'),
        ("[-94.57857,39.09973]", "[(withheld),(withheld)]"),
        ("(-94.57857 39.09973)", "((withheld) (withheld))"),
        ("POINT(-94.57857 39.09973)", "POINT((withheld) (withheld))"),
        ("39.09973:-94.57857", "(withheld):(withheld)"),
        ("94.57857:39.09973", "(withheld):(withheld)"),
        ("lat=+39.09973&lon=-94.578", "lat=(withheld)&lon=(withheld)"),
        ("geo:39.09973,-94.57857", "geo:(withheld),(withheld)"),
        ("lat:\t39.09973", "lat:\t(withheld)"),
        ("3.909973e1", "(withheld)e1"),
    ],
)
def test_what_may_be_a_coordinate_is_withheld(text: str, quoted: str) -> None:
    assert redact_coordinates(text) == quoted


@pytest.mark.parametrize(
    "text",
    [
        "2025-12-04T03:14:15.123456Z",
        "03:14:15.123",
        '{"time":"2025-12-04T03:14:15.123+00:00"}',
        "20251204T031415.123456Z",
        "1.25.3",
        "v1.25.300",
        "10.0.19.127",
        "1048576",
        "1.5 MiB",
        "12.25",
        "4096.125 bytes",
        "usgs/streamflow/2025/12/04/03/part-0001.parquet",
    ],
)
def test_what_cannot_be_one_stays(text: str) -> None:
    assert redact_coordinates(text) == text


def test_numbers_and_text_are_quoted_the_same_way() -> None:
    assert (quote_value(-94.57857), quote_value("39.09973"), quote_value(12.5)) == (
        "(withheld)",
        "'(withheld)'",
        "12.5",
    )
