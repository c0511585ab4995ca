"""The same inputs give the same bytes on another day, another machine, in another order: as `diff -r` would compare."""

import io
import os
import subprocess
import time
from datetime import datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.care.review import decide, tables
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.producer.samples import tribal_areas_object
from kfm_pipelines_tests.fixtures.care.register import KEY as HERITAGE
from kfm_pipelines_tests.fixtures.care.register import MONTH, sites, with_reviewer
from kfm_pipelines_tests.fixtures.runs.batches import work_in_batches
from kfm_pipelines_tests.fixtures.sites.command import COMMAND
from kfm_pipelines_tests.fixtures.sites.site import START, Put, Site, opened_site

PUBLIC = ("catalog", "objects", "processed")
# Another machine's worth of differences: none of them may be seen in what is published.
ELSEWHERE = {
    "TZ": "Pacific/Kiritimati",
    "LC_ALL": "POSIX",
    "PYTHONCOERCECLOCALE": "0",
    "PYTHONUTF8": "0",
    "PYTHONHASHSEED": "4711",
    "KFM_BATCH_SIZE": "1",
}


def uploaded(site: Site, name: str, data: bytes, start: datetime) -> Put:
    answer = s3_client().put_object(Bucket=site.bucket, Key=name, Body=data)
    return Put(name, answer["ETag"].strip('"'), answer["VersionId"], len(data), start)


def approve(site: Site, private_key: Path) -> None:
    digest = tables.pending_review(site.services.database, HERITAGE).release_digest
    decide.approve(site.services, HERITAGE, digest, private_key, "as agreed")


def public(site: Site) -> tuple[dict[str, str], set[str]]:
    """Files with their digests, and folders."""
    folders = {str(path.relative_to(site.data)) for tier in PUBLIC for path in (site.data / tier).rglob("*/")}
    return site.tree(*PUBLIC), folders


def work_elsewhere(site: Site) -> None:
    environment = {**site.environment, **ELSEWHERE}
    done = subprocess.run(
        [*COMMAND, "work", "--once"],
        env=environment,
        umask=0o077,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_two_sites_with_the_same_inputs_publish_the_same_bytes(
    stack: Stack, site_template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres_url = stack.environment["KFM_POSTGRES_URL"]
    with opened_site(tmp_path / "one", postgres_url, site_template, SOURCE_DATE_EPOCH="1767225600") as site:
        register = with_reviewer(site)
        sink = io.BytesIO()
        pq.write_table(sites(register.dataset), sink)
        puts = [
            *(site.put(hour) for hour in range(2)),
            uploaded(site, *tribal_areas_object(START), START),
            uploaded(site, "heritage/sites/2026/05/register-01.parquet", sink.getvalue(), MONTH),
        ]
        work_in_batches(site)
        approve(site, register.private_key)
        work_in_batches(site)
        resources, first = site.environment["KFM_RESOURCES"], public(site)
        runs = site.fetch("SELECT DISTINCT run_id FROM kfm.ledger")

    with opened_site(
        tmp_path / "far" / "away",
        postgres_url,
        site_template,
        KFM_RESOURCES=resources,
        SOURCE_DATE_EPOCH="1767225600",
    ) as other:
        other.send_all([other.s3_message(put) for put in reversed(puts)])
        work_elsewhere(other)
        approve(other, register.private_key)
        monkeypatch.setenv("TZ", ELSEWHERE["TZ"])
        time.tzset()
        umask = os.umask(0o077)
        try:
            work_in_batches(other)
        finally:
            os.umask(umask)
            monkeypatch.undo()
            time.tzset()
        second = public(other)
        assert not {row["run_id"] for row in runs} & {
            row["run_id"] for row in other.fetch("SELECT DISTINCT run_id FROM kfm.ledger")
        }

    assert len([path for path in first[0] if path.startswith("processed/")]) == 4
    assert second == first
