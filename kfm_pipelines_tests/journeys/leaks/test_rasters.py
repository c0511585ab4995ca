"""What is measured at a sensitive place, and the place itself, occurs in no byte that is written of a masked raster:
tiles, overviews, picture, statistics, H3 cells, review page, logs, tables, dead letters and Dagster's metadata. With
masking lifted, the same search finds it in everything that is published."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import shapely
import yaml

from kfm_pipelines.aws.clients import sqs_client
from kfm_pipelines.care.review import decide, tables
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.telemetry.logs.lines import LOG_FILE
from kfm_pipelines_tests.fixtures.care.raster_policy import raster_policy, write_footprints
from kfm_pipelines_tests.fixtures.care.register import Register, with_reviewer
from kfm_pipelines_tests.fixtures.leaks.scanner import Canary, Hit, Scanner
from kfm_pipelines_tests.fixtures.rasters.invented import RAIN, geotiff, raster_dataset
from kfm_pipelines_tests.fixtures.runs.batches import work_in_batches
from kfm_pipelines_tests.fixtures.sites.command import CommandResult, kfm_in_process
from kfm_pipelines_tests.fixtures.sites.site import Site, opened_site
from kfm_pipelines_tests.fixtures.telemetry.log_file import lines_of

pytestmark = pytest.mark.slow

WEST, NORTH, PIXEL, ROWS, COLUMNS = -99.0, 39.0, 0.002, 300, 1100
LONGITUDE, LATITUDE = -97.8746123, 38.7137891
PLANTED = 61.739254  # of a block of pixels around the place, and of no other
BRIGHTEST = (253, 231, 36)  # of the palette, where all other values are dark
CANARY = Canary(LONGITUDE, LATITUDE, values=(PLANTED,), colours=(BRIGHTEST,))
PUBLIC_RAIN, RED, CUT = 0, 1, 2  # hours
LIFTED = 5


def rain(**far_away: float) -> bytes:
    """Rain over two degrees, which has the planted value around the place, and perhaps another one far away."""
    values = np.random.default_rng(11).gamma(2.0, 2.0, (ROWS, COLUMNS)).astype(np.float32).clip(0, 25)
    row, column = int((NORTH - LATITUDE) / PIXEL), int((LONGITUDE - WEST) / PIXEL)
    values[row - 16 : row + 16, column - 16 : column + 16] = PLANTED
    values[5, 5] = far_away.get("value", 1.0)
    return geotiff(values, west=WEST, north=NORTH, pixel=PIXEL)


def declare(site: Site) -> None:
    """Makes the streamflow dataset one of rasters, in which places are masked and releases are reviewed."""
    resources = site.root / "resources"
    picture = {"min": 0, "max": 60, "palette": "viridis"}
    declared = raster_dataset(h3_res="7", bands=[RAIN | {"min": 0, "max": 100}], picture=picture)
    document: dict[str, Any] = declared.model_dump(mode="json", exclude_unset=True, exclude={"table"})
    document["input"]["bucket"] = site.bucket
    document |= {"policy": "hidden-places", "review": "required"}
    (resources / "datasets" / "usgs-streamflow.yaml").write_text(yaml.safe_dump(document))
    policy = raster_policy().model_dump(exclude_defaults=True)
    (resources / "policies" / "hidden-places.yaml").write_text(yaml.safe_dump(policy))
    for candidate in (resources / "candidates").glob("usgs-streamflow*"):
        candidate.unlink()
    vars(site.services).pop("datasets")  # as a new process would read them


@pytest.fixture(scope="module")
def register(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Register]:
    """A site whose footprints are in a folder of their own, and a reviewer."""
    folder = tmp_path_factory.mktemp("raster-leaks")
    footprints = write_footprints(folder / "footprints", shapely.Point(LONGITUDE, LATITUDE).buffer(0.004))
    settings = {"KFM_FOOTPRINTS": str(footprints)}
    with opened_site(folder / "site", stack.environment["KFM_POSTGRES_URL"], site_template, **settings) as site:
        declare(site)
        yield with_reviewer(site)


def key_of(site: Site, hour: int) -> str:
    return site.key(hour).replace(":none:", ":7:")


def approve(register: Register, hour: int) -> None:
    services, key = register.site.services, key_of(register.site, hour)
    digest = tables.pending_review(services.database, key).release_digest
    decide.approve(services, key, digest, register.private_key, "as agreed")


def run(site: Site, output: dict[str, bytes], *arguments: str) -> CommandResult:
    printed = kfm_in_process(site.environment, *arguments)
    output[f"kfm {' '.join(arguments[:2])}"] = (printed.out + printed.err).encode()
    return printed


def dead_letters(site: Site) -> bytes:
    queues = [queue.url for queue in site.services.dead_letter_queues]
    answers = [sqs_client().receive_message(QueueUrl=url, MaxNumberOfMessages=10) for url in queues]
    return repr([answer.get("Messages", []) for answer in answers]).encode()


def leaks(site: Site, output: dict[str, bytes]) -> list[Hit]:
    """Scans every file outside the restricted tier, every table, Dagster's among them, and all output."""
    scanner = Scanner([CANARY])
    hits = scanner.scan_tree(site.root, exclude=[site.data / "work" / "restricted"])
    hits += scanner.scan_postgres(site.environment["KFM_POSTGRES_URL"])
    return hits + [hit for name, data in output.items() for hit in scanner.scan(name, data)]


def test_no_byte_of_a_masked_raster_reveals_the_place(register: Register, capfd: pytest.CaptureFixture[str]) -> None:
    site, output = register.site, dict[str, bytes]()
    site.put(PUBLIC_RAIN, rain())
    site.put(RED, rain(value=5000.0))
    site.put(CUT, rain()[:-1000])
    site.work()
    key = key_of(site, PUBLIC_RAIN)
    run(site, output, "dlq", "list")
    run(site, output, "dlq", "show", "1")
    run(site, output, "review", "list", "--json")
    run(site, output, "review", "show", key, "--out", str(site.root / "public-page.html"))
    assert leaks(site, output) == []
    assert Scanner([CANARY]).scan_tree(site.data / "work" / "restricted") != []

    approve(register, PUBLIC_RAIN)
    site.work()
    run(site, output, "status", key, "--json")
    verified = run(site, output, "verify", "--all")
    assert verified.code == 0, verified.err
    output |= {"queues": dead_letters(site), "logs": "".join(capfd.readouterr()).encode()}
    assert site.fetch("SELECT key, revision FROM kfm.revisions") == [{"key": key, "revision": 1}]
    red, cut = (row["reason"] for row in site.fetch("SELECT reason FROM kfm.dead_letters ORDER BY key"))
    assert "found 1 of 330000 pixels outside" in red
    assert "is not readable as GeoTIFF: it is cut" in cut
    assert len(lines_of(site.root / "telemetry" / LOG_FILE)) > 50  # scanned with the rest of KFM_HOME
    assert (site.root / "public-page.html").stat().st_size > 10_000
    assert leaks(site, output) == []


def test_with_masking_lifted_the_same_search_finds_it_in_all_that_is_published(register: Register) -> None:
    site = register.site
    until = site.services.today() + timedelta(days=1)
    decide.grant_exemption(
        site.services, "usgs/streamflow", "", until, register.private_key, "to show that the search works"
    )
    site.put(LIFTED, rain())
    work_in_batches(site)
    approve(register, LIFTED)
    work_in_batches(site)

    hits = {f"{hit.name}: {hit.form}" for hit in leaks(site, {})}
    for piece in (
        r".*\.tif > tiff@0 full size, band 1: float32",
        r".*\.tif > tiff@0 overview 1, band 1: float32",
        r".*\.tif > tiff@0 overview 2, band 1: float32",
        r".*\.png > png@0: colour",
        r"data/catalog/usgs-streamflow/items/.*\.json: decimal",
        r"data/processed/.*\.parquet > column rain_max: float64",
        r"data/processed/.*\.parquet > column rain_mean: float64",
    ):
        assert any(re.fullmatch(piece, hit) for hit in hits), piece
