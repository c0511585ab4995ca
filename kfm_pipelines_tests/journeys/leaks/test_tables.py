"""Coordinates, names and ids planted in a register occur in no byte written outside the restricted tier, whatever
happens to the register. With masking lifted, the same search finds all of them."""

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyproj import Transformer

from kfm_pipelines.aws.clients import sqs_client
from kfm_pipelines.care.review import decide as exempt
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.sinks.table.check import differences
from kfm_pipelines.sinks.table.warehouse import load_table
from kfm_pipelines.telemetry.logs.lines import LOG_FILE
from kfm_pipelines_tests.fixtures.care.register import CENTRES, KEY, Register, sites, with_reviewer
from kfm_pipelines_tests.fixtures.leaks.scanner import Canary, Hit, Scanner
from kfm_pipelines_tests.fixtures.sites.command import kfm
from kfm_pipelines_tests.fixtures.sites.site import OWN, Site, opened_site
from kfm_pipelines_tests.fixtures.telemetry.log_file import lines_of

pytestmark = pytest.mark.slow

COUNT = 60
TO_UTM = Transformer.from_crs("OGC:CRS84", "EPSG:32614", always_xy=True)


def _canaries() -> list[Canary]:
    """Returns one for every site, near the four centres so that some cells have enough features to be released."""
    dice = random.Random(20260516)
    found: list[Canary] = []
    while len(found) < COUNT:
        latitude, longitude = CENTRES[len(found) % 4]
        number = len(found)
        try:
            found.append(
                Canary(
                    longitude + dice.uniform(-0.02, 0.02),
                    latitude + dice.uniform(-0.02, 0.02),
                    texts=(
                        f"Quillwort Hollow {dice.randrange(16**6):06x}",
                        f"Marrowbone {dice.randrange(16**6):06x} Ranch",
                    ),
                    ids=(f"14ZQ{number:03d}{dice.randrange(10**6):06d}",),
                )
            )
        except ValueError:
            continue  # its digits could occur by chance
    return found


CANARIES = _canaries()


@pytest.fixture
def site(stack: Stack, site_template: str, tmp_path: Path) -> Iterator[Site]:
    """The register is also an Iceberg table."""
    url, datasets = stack.environment["KFM_POSTGRES_URL"], ["heritage-sites"]
    with opened_site(tmp_path / "site", url, site_template, OWN, datasets) as opened:
        yield opened


def planted(register: Register, **columns: Any) -> pa.Table:
    grid = [TO_UTM.transform(one.longitude, one.latitude) for one in CANARIES]
    places = {
        "longitude": [one.longitude for one in CANARIES],
        "latitude": [one.latitude for one in CANARIES],
        "easting": [easting for easting, _ in grid],
        "northing": [northing for _, northing in grid],
        "directions": [f"turn at {one.latitude:.5f}, {one.longitude:.5f}" for one in CANARIES],
        "site_id": [one.ids[0] for one in CANARIES],
        "site_name": [one.texts[0] for one in CANARIES],
        "land_owner": [one.texts[1] for one in CANARIES],
    }
    return sites(register.dataset, COUNT, **(places | columns))


@dataclass
class Output:
    """What commands printed and queues carried, which is on no disk."""

    parts: dict[str, bytes] = field(default_factory=dict)

    def run(self, register: Register, *arguments: str) -> None:
        printed = kfm(register.site.environment, *arguments)
        self.parts[f"kfm {' '.join(arguments[:2])} {len(self.parts)}"] = (printed.out + printed.err).encode()


def fail_and_redrive(register: Register, output: Output) -> None:
    """Fails in every way, then redrives the dead letter until a release awaits review."""
    site = register.site
    for wrong in (
        {"sensitivity": ["sacred"] * COUNT},
        {"period": [None] * COUNT},
        {"site_id": [CANARIES[0].ids[0]] * COUNT},
        {"latitude": [float("nan"), *(one.latitude for one in CANARIES[1:])]},
        {"longitude": [one.latitude for one in CANARIES], "latitude": [one.longitude for one in CANARIES]},
    ):
        register.put(planted(register, **wrong))
        site.work()
    output.run(register, "dlq", "list")
    output.run(register, "dlq", "show", "1")
    register.put(planted(register))
    output.run(register, "dlq", "redrive", "--dataset", "heritage/sites", "--work", "--wait", "60")
    site.work()
    output.run(register, "review", "list", "--json")
    output.run(register, "review", "show", KEY, "--out", str(site.root / "public-page.html"))


def reject_and_publish(register: Register, output: Output) -> None:
    """Rejects the waiting release, then approves and publishes another."""
    site = register.site
    register.reject()
    output.run(register, "status", KEY)
    register.put(planted(register, condition=["poor"] * COUNT))
    site.work()
    register.approve()
    site.work()
    site.services.database.execute("UPDATE kfm.keys SET due_at = clock_timestamp()")
    site.work()
    output.run(register, "status", KEY, "--json")
    output.parts |= dict(_dead_letters(site))


def _dead_letters(site: Site) -> Iterator[tuple[str, bytes]]:
    for queue in site.services.dead_letter_queues:
        answer = sqs_client().receive_message(QueueUrl=queue.url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
        yield f"queue {queue.name}", repr(answer.get("Messages", [])).encode()


def leaks(register: Register, output: Output) -> list[Hit]:
    """Scans every file outside the restricted tier, every table and all output."""
    scanner = Scanner(CANARIES)
    site = register.site
    hits = scanner.scan_tree(site.root, exclude=[site.data / "work" / "restricted"])
    hits += scanner.scan_postgres(site.environment["KFM_POSTGRES_URL"])
    for name, data in output.parts.items():
        hits += scanner.scan(name, data)
    return hits


def test_no_byte_reveals_a_canary(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    register, output = with_reviewer(site), Output()
    fail_and_redrive(register, output)
    output.parts["logs until review"] = "".join(capfd.readouterr()).encode()

    assert register.waiting().release["rows"] > 20
    assert leaks(register, output) == []
    restricted = Scanner(CANARIES).scan_tree(site.data / "work" / "restricted")
    assert {hit.canary for hit in restricted} == set(range(COUNT))

    reject_and_publish(register, output)
    output.parts["logs"] = "".join(capfd.readouterr()).encode()

    assert site.fetch("SELECT revision FROM kfm.revisions") == [{"revision": 1}]
    assert register.published().num_rows > 20
    table = load_table(site.services, register.dataset)
    assert table is not None
    assert table.scan().to_arrow().num_rows == register.published().num_rows
    assert not list((site.data / "work" / "restricted").rglob("*.parquet"))
    assert (site.root / "public-page.html").stat().st_size > 50_000
    assert len(output.parts["logs until review"] + output.parts["logs"]) > 10_000
    assert len(lines_of(site.root / "telemetry" / LOG_FILE)) > 50  # scanned with the rest of KFM_HOME
    assert leaks(register, output) == []


def test_with_masking_lifted_the_same_search_finds_every_canary(site: Site) -> None:
    register = with_reviewer(site)
    until = site.services.today() + timedelta(days=1)
    exempt.grant_exemption(site.services, "heritage/sites", "", until, register.private_key, "to show that this works")
    register.publish(planted(register))

    hits = [hit for hit in leaks(register, Output()) if hit.name.startswith("data/processed/")]
    assert {hit.canary for hit in hits} == set(range(COUNT))
    assert {hit.canary for hit in hits if hit.form.startswith("float64")} == set(range(COUNT))


def test_what_only_an_exemption_releases_does_not_get_into_the_table(site: Site) -> None:
    register = with_reviewer(site)
    until = site.services.today() + timedelta(days=1)
    exempt.grant_exemption(site.services, "heritage/sites", "", until, register.private_key, "for the court")
    register.publish(planted(register), Site.work)
    assert site.fetch("SELECT key FROM kfm.outbox") == []
    assert [hit for hit in leaks(register, Output()) if hit.name.startswith("data/tables/")] == []
    assert differences(site.services, register.dataset, [KEY]) == {}


def test_the_search_reads_every_file_of_a_table(site: Site) -> None:
    register = with_reviewer(site)
    register.publish(planted(register), Site.work)
    table = load_table(site.services, register.dataset)
    assert table is not None
    found: list[Canary] = []
    for row in table.scan().to_arrow().to_pylist():
        with suppress(ValueError, TypeError):  # digits that could occur by chance; a place that is withheld
            found.append(Canary(row["longitude"], row["latitude"]))
    hits = Scanner(found).scan_tree(site.data / "tables")
    assert {hit.name.partition("!")[0].rpartition(".")[2].split()[0] for hit in hits} >= {"parquet", "avro"}
