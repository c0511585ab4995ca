"""`kfm doctor` names what is wrong and fixes it with --fix. test_topology.py covers each setting."""

from collections.abc import Iterator

import pytest

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.local.stack import Stack
from kfm_pipelines_tests.fixtures.aws.emulator import set_queue
from kfm_pipelines_tests.fixtures.care.register import with_reviewer
from kfm_pipelines_tests.fixtures.sites.command import kfm
from kfm_pipelines_tests.fixtures.sites.site import RECEIVED, Site, opened_site


@pytest.fixture(scope="module")
def site(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site with a reviewer: the shipped authorities have no keys, which would be a finding."""
    root = tmp_path_factory.mktemp("doctor") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template, RECEIVED) as opened:
        yield with_reviewer(opened).site


def wrong(document: dict[str, list[dict[str, object]]]) -> list[object]:
    return [check["check"] for check in document["checks"] if not check["ok"]]


def test_a_healthy_site_has_nothing_wrong(site: Site) -> None:
    document = kfm(site.environment, "doctor", "--json").json

    assert document["ok"]
    assert wrong(document) == []
    assert "no provider on the embedded stack until `kfm emit` plays it" in str(document)


@pytest.mark.slow
def test_wrong_settings_are_named_and_fixed(site: Site) -> None:
    queue = site.services.queue.name
    set_queue(queue, VisibilityTimeout="1")
    s3_client().put_bucket_versioning(Bucket=site.bucket, VersioningConfiguration={"Status": "Suspended"})

    found = kfm(site.environment, "doctor")
    assert found.code == 1
    assert f"WRONG  visibility timeout of {queue}: 1 s" in found.out
    assert f"WRONG  bucket {site.bucket}: not versioned" in found.out

    fixed = kfm(site.environment, "doctor", "--fix", "--json").json
    assert fixed["ok"]
    assert fixed["fixed"] == [f"bucket {site.bucket}: versioning", f"queue {queue}: VisibilityTimeout"]


def test_a_missing_queue_does_not_hide_the_other_findings(site: Site) -> None:
    result = kfm({**site.environment, "KFM_QUEUE": "nowhere"}, "doctor")

    assert result.code == 1
    assert "WRONG  queue nowhere: there is no queue 'nowhere'" in result.out
    assert f"ok     topic {site.services.settings.topic}" in result.out
    assert "ok     Postgres" in result.out


def test_a_problem_only_people_can_fix_is_not_reported_as_fixed(site: Site) -> None:
    environment = {**site.environment, "KFM_CARE_KEY_HERITAGE_2026": "too short"}

    result = kfm(environment, "doctor", "--fix")

    assert result.code == 1
    assert "fixed" not in result.out
    assert "WRONG  secret for heritage/sites: the secret of key heritage-2026 is shorter than 32 bytes" in result.out
    assert "too short" not in result.out + result.err
