"""What is in a bucket now: every object below a prefix in its current version, as S3's own notices would tell of it."""

from collections.abc import Iterator

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.aws.errors import translate_aws_errors
from kfm_pipelines.errors import MessageRefused
from kfm_pipelines.events.notice import ObjectNotice
from kfm_pipelines.events.shapes.s3 import S3Object, s3_notice

SHAPE = "s3-listing"


def list_objects(bucket: str, prefix: str) -> Iterator[ObjectNotice]:
    """In one pass, a thousand at a time. What is deleted, or named in a way no notice could be, is left out."""
    pages = s3_client().get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix)
    with translate_aws_errors(f"listing s3://{bucket}/{prefix}"):
        for page in pages:
            for version in page.get("Versions", ()):
                if not version["IsLatest"]:
                    continue
                stored = S3Object(
                    bucket, version["Key"], version.get("ETag"), version.get("VersionId"), version["Size"], None
                )
                try:
                    yield s3_notice(SHAPE, "created", stored, version["LastModified"])
                except MessageRefused:
                    continue
