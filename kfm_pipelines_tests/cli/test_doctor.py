"""`kfm doctor` says what is wrong, and mends it when asked."""

from kfm_pipelines.messaging.clients import s3_client, sqs_client
from kfm_pipelines_tests.cli.command import kfm
from kfm_pipelines_tests.site import Site


def wrong(document: dict[str, list[dict[str, object]]]) -> list[object]:
    return [check["check"] for check in document["checks"] if not check["ok"]]


def test_a_healthy_site_has_nothing_wrong(site: Site) -> None:
    document = kfm(site.environment, "doctor", "--json").json

    assert document["ok"]
    assert wrong(document) == []


def test_what_is_wrong_is_named_and_mended(site: Site) -> None:
    url = sqs_client().get_queue_url(QueueName=site.workshop.queue.name)["QueueUrl"]
    sqs_client().set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "1"})
    s3_client().put_bucket_versioning(Bucket=site.bucket, VersioningConfiguration={"Status": "Suspended"})

    found = kfm(site.environment, "doctor")
    assert found.code == 1
    assert "WRONG  visibility timeout: 1 s" in found.out
    assert f"WRONG  bucket {site.bucket}: not versioned" in found.out

    assert kfm(site.environment, "doctor", "--fix", "--json").json["ok"]


def test_a_missing_queue_does_not_hide_the_other_findings(site: Site) -> None:
    said = kfm({**site.environment, "KFM_QUEUE": "nowhere"}, "doctor")

    assert said.code == 1
    assert "WRONG  queue: there is no queue 'nowhere'" in said.out
    assert "ok     Postgres" in said.out
