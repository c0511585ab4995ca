"""`kfm doctor` says what is wrong, and mends it when asked. Each setting is checked in operations/test_diagnosis.py."""

import pytest

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines_tests.fixtures.aws.emulator import set_queue
from kfm_pipelines_tests.fixtures.care.register import with_reviewer
from kfm_pipelines_tests.fixtures.sites.command import kfm
from kfm_pipelines_tests.fixtures.sites.site import Site


@pytest.fixture
def site(site: Site) -> Site:
    """With somebody who can review: the shipped authorities have no keys, which would be a finding of its own."""
    return with_reviewer(site).site


def wrong(document: dict[str, list[dict[str, object]]]) -> list[object]:
    return [check["check"] for check in document["checks"] if not check["ok"]]


def test_a_healthy_site_has_nothing_wrong(site: Site) -> None:
    document = kfm(site.environment, "doctor", "--json").json

    assert document["ok"]
    assert wrong(document) == []


@pytest.mark.slow
def test_what_is_wrong_is_named_and_mended(site: Site) -> None:
    queue = site.services.queue.name
    set_queue(queue, VisibilityTimeout="1")
    s3_client().put_bucket_versioning(Bucket=site.bucket, VersioningConfiguration={"Status": "Suspended"})

    found = kfm(site.environment, "doctor")
    assert found.code == 1
    assert f"WRONG  visibility timeout of {queue}: 1 s" in found.out
    assert f"WRONG  bucket {site.bucket}: not versioned" in found.out

    mended = kfm(site.environment, "doctor", "--fix", "--json").json
    assert mended["ok"]
    assert mended["fixed"] == [f"bucket {site.bucket}: versioning", f"queue {queue}: VisibilityTimeout"]


def test_a_missing_queue_does_not_hide_the_other_findings(site: Site) -> None:
    said = kfm({**site.environment, "KFM_QUEUE": "nowhere"}, "doctor")

    assert said.code == 1
    assert "WRONG  queue nowhere: there is no queue 'nowhere'" in said.out
    assert f"ok     topic {site.services.settings.topic}" in said.out
    assert "ok     Postgres" in said.out


def test_what_only_a_person_can_mend_is_not_called_mended(site: Site) -> None:
    environment = {**site.environment, "KFM_CARE_KEY_HERITAGE_2026": "too short"}

    said = kfm(environment, "doctor", "--fix")

    assert said.code == 1
    assert "mended" not in said.out
    assert "WRONG  secret for heritage/sites: the secret of key heritage-2026 is shorter than 32 bytes" in said.out
    assert "too short" not in said.out + said.err
