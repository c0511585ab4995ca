"""Several workers of one command share the keys, publish each once, survive each other and end with the command."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import psutil  # type: ignore[import-untyped]
import pytest

from kfm_pipelines_tests.fixtures.runs.crash import applied
from kfm_pipelines_tests.fixtures.sites.command import COMMAND, kfm
from kfm_pipelines_tests.fixtures.sites.processes import WITH_IGNORED_SIGNALS, descendants, eventually, running
from kfm_pipelines_tests.fixtures.sites.site import Site

pytestmark = pytest.mark.slow

KEYS = 60
WORK = (*COMMAND, "work", "--workers", "2")


def put_keys(site: Site) -> list[str]:
    for hour in range(KEYS):
        site.put(hour)
    return [site.key(hour) for hour in range(KEYS)]


@contextmanager
def command(site: Site, *arguments: str, prefix: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    with (site.root / "err").open("w") as err:
        process = subprocess.Popen(
            [*prefix, *WORK, *arguments], env=site.environment, stdout=subprocess.PIPE, stderr=err, text=True
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def workers_of(command: subprocess.Popen[str]) -> list[int]:
    """Returns the processes forked by the fork server of the command."""
    lines = {pid: " ".join(psutil.Process(pid).cmdline()) for pid in descendants(command.pid) if running(pid)}
    forking = {pid for pid, line in lines.items() if "forkserver" in line}
    return [pid for pid in forking if psutil.Process(pid).ppid() in forking]


def test_two_workers_share_the_keys_and_print_one_summary(site: Site) -> None:
    keys = put_keys(site)

    worked = kfm(site.environment, "work", "--once", "--workers", "2", "--json")

    assert (worked.code, worked.err) == (0, "")
    assert {name: worked.json[name] for name in ("keys", "published", "failed")} == {
        "keys": KEYS,
        "published": KEYS,
        "failed": 0,
    }
    assert applied(site) == dict.fromkeys(keys, 1)
    # On a busy machine one worker may take both shares before the other has started; neither takes more at once.
    shares = site.fetch("SELECT count(*)::int AS keys FROM kfm.revisions GROUP BY run_id")
    assert [share["keys"] for share in shares] == [KEYS // 2] * 2


def test_keys_of_a_killed_worker_are_taken_over(site: Site) -> None:
    keys = put_keys(site)
    with command(site, "--once", "--json") as working:
        assert eventually(lambda: site.fetch("SELECT FROM kfm.keys WHERE owner IS NOT NULL"), seconds=60)
        psutil.Process(workers_of(working)[0]).kill()
        out, _ = working.communicate(timeout=120)

    assert working.returncode == 0, (site.root / "err").read_text()
    assert (site.root / "err").read_text() == "a worker ended with -9\n"
    assert '"failed": 0' in out
    assert applied(site) == dict.fromkeys(keys, 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_command_even_in_the_background_of_a_script(site: Site, number: signal.Signals) -> None:
    with command(site, prefix=WITH_IGNORED_SIGNALS) as working:
        assert eventually(lambda: len(workers_of(working)) == 2, seconds=60)
        family = descendants(working.pid)

        working.send_signal(number)

        assert working.wait(30) == (130 if number is signal.SIGINT else -number)
    assert eventually(lambda: not any(running(pid) for pid in family))
