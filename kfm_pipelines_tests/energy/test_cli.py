"""`kfm energy report` prints the ledger by dataset and month, and writes a table and a chart."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kfm_pipelines.operations.dead_letters import tables
from kfm_pipelines.operations.dead_letters.export import letter_record
from kfm_pipelines.operations.dead_letters.tables import LetterFilter
from kfm_pipelines_tests.fixtures.sites.command import kfm
from kfm_pipelines_tests.fixtures.sites.site import Site

PNG = b"\x89PNG\r\n\x1a\n"


def test_an_empty_ledger_is_reported_in_one_sentence(untouched: Site, tmp_path: Path) -> None:
    result = kfm(untouched.environment, "energy", "report", "--png", str(tmp_path / "chart.png"))
    assert (result.code, result.out) == (0, "the energy ledger has no entries yet\n")
    assert result.err == "no entries, so no file was written\n"
    assert not (tmp_path / "chart.png").exists()
    chosen = ("--dataset", "usgs/streamflow", "--from", "2025-01", "--to", "2025-02")
    result = kfm(untouched.environment, "energy", "report", *chosen)
    assert result.out == "the energy ledger has no entries for usgs/streamflow from 2025-01 to 2025-02\n"
    assert kfm(untouched.environment, "energy", "report", "--json").json == {"lines": [], "coefficients": []}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--from", "2025-13"), "'2025-13' does not match the format '%Y-%m'"),
        (("--from", "2025-02", "--to", "2025-01"), "--to 2025-01 is before --from 2025-02"),
        (("--dataset", "usgs/steamflow"), "usgs/steamflow"),
    ],
)
def test_invalid_options_are_refused(untouched: Site, arguments: tuple[str, ...], reason: str) -> None:
    result = kfm(untouched.environment, "energy", "report", *arguments)
    assert result.code in (1, 2)
    assert reason in result.err
    assert "Traceback" not in result.err


def test_published_and_failed_keys_are_reported(site: Site, tmp_path: Path) -> None:
    site.put(0)
    site.put(1, b"not a table")
    site.drain()
    site.work()

    month = datetime.now(UTC).strftime("%Y-%m")
    document = kfm(site.environment, "energy", "report", "--json").json
    [line] = [one for one in document["lines"] if one["dataset"] == "usgs/streamflow"]
    assert (line["month"], line["method"], line["keys"], line["estimated_without"]) == (month, "estimated", 2, [])
    assert min(line[name] for name in ("energy_kwh", "co2e_kg_estimated", "cost_usd_estimated")) > 0
    assert 0 < line["share_for_nothing"] < 1  # the failed key
    assert document["coefficients"][0]["grid"]["source"] == "US EPA eGRID2023, subregion SPNO"
    _check_letter_cost(site)

    page, picture = tmp_path / "energy.html", tmp_path / "energy.png"
    result = kfm(site.environment, "energy", "report", "--html", str(page), "--png", str(picture))
    assert result.code == 0, result.err
    assert f"usgs/streamflow {month} estimated" in " ".join(result.out.split())
    assert "grid: 394 g CO2e per kWh (US EPA eGRID2023, subregion SPNO, 2023, Kansas)" in result.out
    assert picture.read_bytes().startswith(PNG)
    html = page.read_text()
    assert "<script" not in html
    assert "http" not in html
    assert month in html
    assert "US EPA eGRID2023" in html
    unwritable = kfm(site.environment, "energy", "report", "--png", str(tmp_path / "none" / "x.png"))
    assert unwritable.code == 1
    assert "cannot be written: No such file or directory" in unwritable.err


def _check_letter_cost(site: Site) -> None:
    [letter] = tables.find_letters(site.services.database, LetterFilter(), 10)
    cost = letter_record(site.services, letter)["cost"]
    entered = site.fetch(
        f"SELECT sum(watt_seconds) AS ws, sum(cost_usd) AS usd FROM kfm.energy WHERE key = '{site.key(1)}' AND epoch = "
        f"{letter.lineage['txn']}"
    )
    assert cost["energy_method"] == "estimated"
    assert cost["energy_joules"] == pytest.approx(entered[0]["ws"])
    assert cost["cost_usd_estimated"] == pytest.approx(entered[0]["usd"])
