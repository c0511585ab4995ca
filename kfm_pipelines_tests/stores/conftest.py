"""Both kinds of store, each empty and real: a folder, and a prefix of a bucket in the emulator."""

from pathlib import Path
from uuid import uuid4

import pytest

from kfm_pipelines.local.stack import Stack
from kfm_pipelines.messaging.clients import s3_client
from kfm_pipelines.stores import Store, open_store


@pytest.fixture
def bucket(stack: Stack) -> str:
    name = f"store-{uuid4().hex[:12]}"
    s3_client().create_bucket(Bucket=name)
    s3_client().put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    return name


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "file":
        return open_store((tmp_path / "a store").as_uri())
    return open_store(f"s3://{request.getfixturevalue('bucket')}/releases")
