"""No line holds a coordinate, password, key or signature; ids, keys, names and times stay readable."""

import logging
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kfm_pipelines.telemetry.logs.lines import log_context
from kfm_pipelines.telemetry.logs.redact import MAX_SCANNED_LENGTH, MAX_TEXT_LENGTH
from kfm_pipelines_tests.fixtures.telemetry.log_file import lines_of, logging_to

# Made up, and put together here so that nobody's scanner takes them for real ones.
ACCESS_KEY = "AKIA" + "Q3EGRNXA7Z4TWK5D"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYzQ2mVtK9sE"
SESSION_TOKEN = "IQoJb3JpZ2luX2Vj" + "Qm9ndXM3" * 20
CARE_SECRET = "a secret of the tests, long enough to count"
POSTGRES_PASSWORD = "p/ss:w@rd-9Kx2"
PEM = Ed25519PrivateKey.from_private_bytes(b"a key that is no key of anybody.").private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
)
PEM_BODY = PEM.decode().splitlines()[1]

log = logging.getLogger("kfm_pipelines.tests")


@pytest.mark.parametrize(
    ("text", "secret", "expected"),
    [
        ("at 39.09973, -94.57857", "39.09973", "at (withheld), (withheld)"),
        ("at 39.09973, -94.57857", "94.57857", "at (withheld), (withheld)"),
        (
            f"no answer from postgresql://kfm:{POSTGRES_PASSWORD}@db:5432/kfm",
            POSTGRES_PASSWORD,
            "no answer from postgresql://kfm:(withheld)@db:5432/kfm",
        ),
        ("postgresql+psycopg2://kfm:hunter2@db/kfm", "hunter2", "postgresql+psycopg2://kfm:(withheld)@db/kfm"),
        ("https://user:hunter2@host/path", "hunter2", "https://user:(withheld)@host/path"),
        ("host=db password=hunter2 user=kfm", "hunter2", "host=db password=(withheld) user=kfm"),
        ("password: bob", "bob", "password: (withheld)"),
        ('{"password": "two words"}', "two words", '{"password": (withheld)}'),
        (f"the key {ACCESS_KEY} is not known", ACCESS_KEY, "the key (withheld) is not known"),
        (f"signed by {SECRET_KEY}", SECRET_KEY, "signed by (withheld)"),
        (f"aws_secret_access_key = {SECRET_KEY}", SECRET_KEY, "aws_secret_access_key = (withheld)"),
        (f"AWS_SESSION_TOKEN={SESSION_TOKEN}", "Qm9ndXM3", "AWS_SESSION_TOKEN=(withheld)"),
        (f"token {SESSION_TOKEN}", "Qm9ndXM3", "token (withheld)"),
        (f"the care key is {CARE_SECRET}!", CARE_SECRET, "the care key is (withheld)!"),
        ("KFM_CARE_KEY_OTHER_2027=short", "short", "KFM_CARE_KEY_OTHER_2027=(withheld)"),
        (f"read {PEM.decode()} from disk", PEM_BODY, "read (withheld)  from disk"),
        (f"read {PEM.decode()[:90]}", PEM_BODY[:40], "read (withheld)"),
        ("Authorization: Bearer abc.def", "abc.def", "Authorization: (withheld)"),
        ("{'Authorization': b'AWS4-HMAC-SHA256 Credential=x'}", "Credential", "{'Authorization': b'(withheld)'}"),
        ("sent Bearer eyJhbGciOiJFZERTQSJ9.e30", "eyJhbGci", "sent Bearer (withheld)"),
        (
            "GET https://b.s3.amazonaws.com/a/b.parquet?X-Amz-Date=1&X-Amz-Signature=0a1b2c&X-Amz-Expires=9",
            "0a1b2c",
            "GET https://b.s3.amazonaws.com/a/b.parquet?X-Amz-Date=1&X-Amz-Signature=(withheld)&X-Amz-Expires=9",
        ),
        ("a?AWSAccessKeyId=abc&Signature=d%2Fe%3D&Expires=1", "d%2Fe", None),
    ],
)
def test_a_planted_value_is_not_in_the_file(tmp_path: Path, text: str, secret: str, expected: str | None) -> None:
    with logging_to(tmp_path, KFM_CARE_KEY_HERITAGE_2026=CARE_SECRET) as file, log_context(object_key=text):
        log.info("%s", text, extra={"more": text, "some": [text], "named": {"one": text}})
        log.info(text.replace("%", "%%") + "%s", "")

    assert secret.encode() not in file.read_bytes()
    for line in lines_of(file):
        assert expected in (None, line["event"])
        assert line["event"] == line["object_key"]


def test_the_configured_password_is_withheld_anywhere(tmp_path: Path) -> None:
    url = "postgresql://kfm:p%2Fss%20w9Kx2%21@db/kfm"
    with logging_to(tmp_path, KFM_POSTGRES_URL=url) as file:
        log.info("one says p%%2Fss%%20w9Kx2%%21, another p/ss w9Kx2!%s", "")
    assert lines_of(file)[0]["event"] == "one says (withheld), another (withheld)"


def test_a_number_that_may_be_a_coordinate_is_withheld(tmp_path: Path) -> None:
    with logging_to(tmp_path) as file:
        log.info("a row", extra={"lat": 39.09973, "rows": 12, "seconds": 1.5, "share": 0.25})
    line = lines_of(file)[0]
    assert [line[name] for name in ("lat", "rows", "seconds", "share")] == ["(withheld)", 12, 1.5, 0.25]


def test_a_large_key_is_withheld_whole(tmp_path: Path) -> None:
    pem = generate_private_key(65537, 2048).private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
    )
    with logging_to(tmp_path) as file:
        log.info("%s", pem.decode())
    assert lines_of(file)[0]["event"] == "(withheld) "


@pytest.mark.parametrize("before", range(MAX_SCANNED_LENGTH - 60, MAX_SCANNED_LENGTH + 10, 14))
def test_a_secret_cut_in_two_is_withheld(tmp_path: Path, before: int) -> None:
    """Redaction shortens the text before it, so that the end of the scanned text is well within the output."""
    padding = "password=" + "y" * (before - 10)
    with logging_to(tmp_path) as file:
        log.info("%s", f"{padding} postgresql://kfm:correct-horse-battery@db/kfm {'x' * MAX_SCANNED_LENGTH}")
    assert b"correct" not in file.read_bytes()


def test_identifiers_stay_readable(tmp_path: Path) -> None:
    about = [
        "usgs-streamflow:kansas_statewide:none:2025-12-04T03Z:v1-0-0",
        "s3://kfm-ingest/usgs/streamflow/2025/12/04/03/streamflow-20251204T03Z.parquet",
        "s3://kfm-ingest/SENTINEL2/tiles/14/S/QJ/2025/12/4/0/R10m/B02.jp2",
        "LC08_L2SP_028034_20251204_20251210_02_T1",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "b6589fc6-ab0d-4c82-8f12-099d1c2d40ab",
        "arn:aws:sns:us-east-1:000000000000:kfm-ingest",
        "2025-12-04T03:14:15.123456Z",
        "http://127.0.0.1:3000/runs/b6589fc6-ab0d-4c82-8f12-099d1c2d40ab",
        "kfm_pipelines/stages/failure.py:81 attempt",
    ]
    with logging_to(tmp_path) as file:
        for text in about:
            log.info("%s", text)
    assert [line["event"] for line in lines_of(file)] == about


def test_long_text_is_truncated(tmp_path: Path) -> None:
    with logging_to(tmp_path) as file:
        log.info("%s", "word " * 1_000_000)
    event = lines_of(file)[0]["event"]
    assert len(event) < MAX_TEXT_LENGTH + 50
    assert event.endswith("… (cut, 5000000 characters)")


@pytest.mark.parametrize("text", ["a.", "postgres://", "password ", "KFM_CARE_KEY_", "-----BEGIN PRIVATE KEY-----"])
def test_no_text_takes_quadratic_time(tmp_path: Path, text: str) -> None:
    """A quadratic pattern would take minutes."""
    begun = time.monotonic()
    with logging_to(tmp_path):
        log.info("%s", text * MAX_SCANNED_LENGTH)
    assert time.monotonic() - begun < 20
