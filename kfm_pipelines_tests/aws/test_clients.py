"""Bytes exchanged with S3 are counted: bodies, on every attempt."""

from uuid import uuid4

import pytest

from kfm_pipelines.aws.clients import s3_client, traffic


@pytest.mark.usefixtures("stack")
def test_request_and_response_bodies_are_counted() -> None:
    bucket = f"b{uuid4().hex[:12]}"
    s3_client().create_bucket(Bucket=bucket)
    sent, received = traffic.sent, traffic.received
    s3_client().put_object(Bucket=bucket, Key="one", Body=bytes(100_000))
    assert 100_000 <= traffic.sent - sent < 101_000
    s3_client().head_object(Bucket=bucket, Key="one")
    assert traffic.received - received < 1_000
    s3_client().get_object(Bucket=bucket, Key="one")["Body"].read()
    s3_client().get_object(Bucket=bucket, Key="one", Range="bytes=0-49999")["Body"].read()
    assert 150_000 <= traffic.received - received < 151_000
    with pytest.raises(s3_client().exceptions.ClientError):
        s3_client().get_object(Bucket=bucket, Key="none")
    assert 150_000 < traffic.received - received < 152_000
