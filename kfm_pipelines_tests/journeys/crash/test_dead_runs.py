"""A run of the real daemon whose process is killed or stopped: another run has its keys within half a minute."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from kfm_pipelines.local.dagster import serve_dagster
from kfm_pipelines.local.stack import Stack
from kfm_pipelines_tests.fixtures.runs.crash import applied
from kfm_pipelines_tests.fixtures.sites.processes import eventually, fork_servers
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site

KEYS = 15
TAKEN_OVER_SECONDS = 30


@pytest.fixture
def patient(stack: Stack, site_template: str, tmp_path: Path) -> Iterator[Site]:
    """A site whose leases outlast every stage, so that only the death or stop of a process ends them."""
    url = stack.environment["KFM_POSTGRES_URL"]
    with opened_site(tmp_path / "site", url, site_template, KFM_LEASE_SECONDS="10") as site:
        yield site


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_another_run_takes_over_within_half_a_minute(patient: Site, number: signal.Signals) -> None:
    with serve_dagster(patient.root, patient.environment):
        for hour in range(KEYS):
            patient.put(hour)
        assert eventually(lambda: owners(patient), seconds=90)
        [server] = fork_servers()
        runs, first = psutil.Process(server).children(), owners(patient)  # two when the keys came in two ticks
        for run in runs:
            run.send_signal(number)
        began = time.monotonic()

        assert eventually(lambda: owners(patient) - first, seconds=90)
        assert time.monotonic() - began < TAKEN_OVER_SECONDS
        assert eventually(lambda: len(applied(patient)) == KEYS, seconds=90)
        if number is signal.SIGSTOP:
            for run in runs:
                run.send_signal(signal.SIGCONT)
            assert eventually(lambda: not any(map(_is_alive, runs)), seconds=60)

    assert applied(patient) == {patient.key(hour): 1 for hour in range(KEYS)}
    assert patient.fetch("SELECT * FROM kfm.dead_letters") == []


def _is_alive(process: psutil.Process) -> bool:
    return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)


def owners(site: Site) -> set[str]:
    return {row["owner"] for row in site.fetch("SELECT DISTINCT owner FROM kfm.keys WHERE owner IS NOT NULL")}
