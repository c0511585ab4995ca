"""Objects of any bucket: the promised version, refused before the download if need be, and errors by class."""

from collections.abc import Callable
from typing import Any

import pytest

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.aws.errors import translate_obstore_errors
from kfm_pipelines.aws.objects import Bucket, get_object, head_object, is_nameable
from kfm_pipelines.errors import (
    IntegrityBroken,
    KfmError,
    ObjectForbidden,
    ObjectMissing,
    ServiceUnavailable,
    Terminal,
    Unreachable,
)
from kfm_pipelines.local.process import LOOPBACK, free_port
from kfm_pipelines_tests.fixtures.stores.s3_faults import Wire, answers

LARGE = bytes(20_000_000)
ODD = ["a//b", "/a", "a/", "a/../b", "./a", "a\tb"]
PLAIN = ["a", "a/b", ".a", "a/..b", "a%20b#c ü?*~{}+&=.json", "..."]


def anything(_size: int, _etag: str) -> None: ...


@pytest.mark.parametrize("key", [*PLAIN, *ODD])
def test_any_key_is_found(bucket: str, key: str) -> None:
    assert is_nameable(key) == (key in PLAIN)
    first = s3_client().put_object(Bucket=bucket, Key=key, Body=b"first")
    second = s3_client().put_object(Bucket=bucket, Key=key, Body=b"second")
    accepted: list[tuple[int, str]] = []
    data, etag = get_object(bucket, key, None, lambda *facts: accepted.append(facts))
    assert (data, f'"{etag}"') == (b"second", second["ETag"])
    assert accepted == [(6, etag)]
    assert head_object(bucket, key) == etag
    data, etag = get_object(bucket, key, first["VersionId"], anything)
    assert (data, f'"{etag}"') == (b"first", first["ETag"])


@pytest.mark.parametrize("key", ["a", "a//b"])
def test_what_is_not_there_is_missing(bucket: str, key: str) -> None:
    for name in (bucket, "no-such-bucket-at-all"):
        with pytest.raises(ObjectMissing, match=f"^reading s3://{name}/{key}: there is no such object or bucket"):
            get_object(name, key, None, anything)
        with pytest.raises(ObjectMissing, match=r"404"):
            head_object(name, key)
    s3_client().put_object(Bucket=bucket, Key=key, Body=b"")
    with pytest.raises(ObjectMissing, match="NoSuchVersion"):
        get_object(bucket, key, "00000000-0000-0000-0000-000000000000", anything)


def test_a_refused_object_is_not_downloaded(bucket: str, wire: Wire) -> None:
    s3_client().put_object(Bucket=bucket, Key="large", Body=LARGE)

    def refuse(size: int, _etag: str) -> None:
        raise IntegrityBroken(f"{size} bytes are too many")

    with pytest.raises(IntegrityBroken, match="20000000 bytes are too many"):
        Bucket(bucket, wire.client).get("large", accept=refuse)
    assert wire.requests == {"GetObject": 1}
    assert wire.sent_bytes < len(LARGE) / 2


@pytest.mark.parametrize(
    ("status", "code", "named"),
    [
        (404, "NoSuchKey", ObjectMissing),
        (404, "NoSuchBucket", ObjectMissing),
        (404, "NoSuchVersion", ObjectMissing),
        (403, "AccessDenied", ObjectForbidden),
        (403, "InvalidAccessKeyId", ObjectForbidden),
        (403, "SignatureDoesNotMatch", ObjectForbidden),
        (401, "Novelty", ObjectForbidden),
        (410, "Novelty", ObjectMissing),
        (500, "InternalError", ServiceUnavailable),
        (503, "SlowDown", ServiceUnavailable),
        (429, "TooManyRequests", ServiceUnavailable),
        (408, "RequestTimeout", ServiceUnavailable),
        (400, "RequestTimeout", ServiceUnavailable),
        (400, "Throttling", ServiceUnavailable),
        (400, "ExpiredToken", ServiceUnavailable),
        (403, "RequestTimeTooSkewed", ServiceUnavailable),
        (409, "OperationAborted", ServiceUnavailable),
        (400, "InvalidArgument", Terminal),
        (412, "PreconditionFailed", Terminal),
    ],
)
def test_a_response_becomes_the_matching_error(wire: Wire, status: int, code: str, named: type[KfmError]) -> None:
    bucket = Bucket("any", wire.client)
    requests: dict[str, Callable[[], object]] = {
        "GetObject": lambda: bucket.get("one"),
        "PutObject": lambda: bucket.put("one", b"", "text/html"),
        "CopyObject": lambda: bucket.copy("other", "one"),
        "DeleteObjects": lambda: bucket.delete(["one"]),
    }
    for operation, call in requests.items():
        with (
            wire.meeting(answers(status, code), operation, lambda _: True) as calls,
            pytest.raises(named, match=rf"^\w+.* s3://any/one: .*{code}") as raised,
        ):
            call()
        assert type(raised.value) is named
        assert len(calls) == (2 if named is ServiceUnavailable else 1)


@pytest.mark.parametrize(
    ("status", "named", "found"),
    [
        (404, ObjectMissing, "404"),
        (403, ObjectForbidden, "403"),
        (500, ServiceUnavailable, "500|cannot be reached"),  # on a loaded machine the second attempt may find nobody
    ],
)
def test_an_answer_without_a_body_is_known_by_its_status(
    wire: Wire, status: int, named: type[KfmError], found: str
) -> None:
    with wire.meeting(answers(status, ""), "HeadObject", lambda _: True), pytest.raises(named, match=found):
        Bucket("any", wire.client).head("one")


@pytest.mark.usefixtures("stack")
def test_a_refused_connection_may_be_taken_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kfm_pipelines.aws.objects.LONGEST_PAUSE_SECONDS", 0)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{LOOPBACK}:{free_port()}")
    with pytest.raises(Unreachable, match=r"^reading s3://any/one: the service cannot be reached$"):
        Bucket("any", s3_client.__wrapped__).get("one")


def test_what_is_no_error_of_obstore_passes_through() -> None:
    with pytest.raises(KeyError), translate_obstore_errors("asking"):
        raise KeyError
    with translate_obstore_errors("asking"):
        pass


@pytest.fixture
def aws_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")


@pytest.mark.parametrize(
    ("name", "region", "address", "virtual"),
    [
        ("one", "eu-central-1", "https://one.s3.eu-central-1.amazonaws.com", "true"),
        ("one.two", "eu-central-1", "https://s3.eu-central-1.amazonaws.com", "false"),
        ("one", "cn-north-1", "https://one.s3.cn-north-1.amazonaws.com.cn", "true"),
    ],
)
@pytest.mark.usefixtures("aws_itself")
def test_a_bucket_of_aws_is_found_where_boto3_finds_it(
    name: str, region: str, address: str, virtual: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", region)
    config: Any = Bucket(name)._open(s3_client.__wrapped__()).config
    assert config["endpoint"] == config["endpoint_url_s3"] == address
    assert config["virtual_hosted_style_request"] == virtual
    assert config["region"] == region


@pytest.mark.usefixtures("aws_itself")
def test_without_credentials_access_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    client = s3_client.__wrapped__()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(ObjectForbidden, match=r"^s3://one: there are no AWS credentials$"):
        Bucket("one", lambda: client).get("one")
