"""Energy, carbon and cost match a calculation by hand; what is unknown stays unknown."""

from dataclasses import replace
from pathlib import Path

import pytest

from kfm_pipelines.energy.estimate import COEFFICIENTS_FILE, Energy, estimate, load_coefficients
from kfm_pipelines.energy.meter import Usage
from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines.settings import shipped_path

SHIPPED = load_coefficients(shipped_path("resources"))


def test_an_hour_of_one_busy_processor() -> None:
    """3600 s at 3.5 W are 12,600 Ws in the machine and 1.135 times that in the data centre: 14,301 Ws or 3.9725 Wh.
    At 394 g for a kilowatt-hour that is 1.565165 g. An hour of a vCPU costs 0.04048 USD."""
    energy = estimate(SHIPPED, Usage(3600, 3600))
    assert energy.method == "estimated"
    assert energy.watt_seconds == pytest.approx(14_301.0)
    assert energy.energy_kwh == pytest.approx(0.0039725)
    assert energy.carbon_grams == pytest.approx(1.565165)
    assert energy.co2e_kg == pytest.approx(0.001565165)
    assert energy.cost_usd == pytest.approx(0.04048)


def test_everything_that_draws_power_counts() -> None:
    """400 s on one vCPU, 100 of them busy, with 0.5 GB in memory, and 2 MB to and from S3:

    processor  400 s * 0.74 W + 100 s * (3.5 - 0.74) W     296   + 276 = 572   Ws
    memory     400 s * 0.5 GB * 0.392 W per GB                           78.4 Ws
    network    0.002 GB * 0.001 kWh per GB * 3,600,000 Ws per kWh         7.2 Ws
    machine                                                             657.6 Ws
    with the data centre, * 1.135                                       746.376 Ws  = 0.00020732667 kWh
    carbon     0.00020732667 kWh * 394 g per kWh                        0.08168671 g
    cost       400 s / 3600 * 0.04048 USD                               0.00449778 USD
             + 200 GB s / 3600 * 0.004445 USD                           0.00024694 USD
    """
    energy = estimate(SHIPPED, Usage(400, 100, 200, bytes_read=9 * 10**9, network_bytes=2_000_000))
    assert energy.method == "estimated"
    assert energy.watt_seconds == pytest.approx(746.376)
    assert energy.energy_kwh == pytest.approx(0.00020732667)
    assert energy.carbon_grams == pytest.approx(0.08168671)
    assert energy.cost_usd == pytest.approx(0.00449778 + 0.00024694, abs=1e-8)


def test_work_on_several_processors_counts_them_all() -> None:
    """10 s busy within 4 s cannot have held less than 10 s: 10 s * 3.5 W * 1.135."""
    assert estimate(SHIPPED, Usage(4, 10)).watt_seconds == pytest.approx(39.725)


def test_the_energy_of_counters_is_used_unchanged() -> None:
    """500 Ws are 0.00013889 kWh, at 394 g for each 0.05472222 g."""
    energy = estimate(SHIPPED, Usage(400, 100, 200, watt_seconds=500.0))
    assert (energy.method, energy.watt_seconds) == ("measured", 500.0)
    assert energy.carbon_grams == pytest.approx(0.05472222)


def test_a_counter_that_did_not_advance_is_not_a_measurement() -> None:
    """It advances every millisecond; quicker work is estimated."""
    assert estimate(SHIPPED, Usage(1, 1, watt_seconds=0.0)).method == "estimated"


WHOLE = Usage(400, 100, 200, network_bytes=2_000_000)


@pytest.mark.parametrize(
    ("part", "missing"),
    [
        (replace(WHOLE, gigabyte_seconds=None), "gigabyte_seconds"),
        (replace(WHOLE, network_bytes=None), "network_bytes"),
    ],
)
def test_an_estimate_uses_what_is_known_and_names_what_is_missing(part: Usage, missing: str) -> None:
    energy = estimate(SHIPPED, part)
    assert (WHOLE.missing, part.missing) == ((), (missing,))
    assert energy.method == "estimated"
    assert energy.watt_seconds is not None
    assert 0 < energy.watt_seconds < (estimate(SHIPPED, WHOLE).watt_seconds or 0)


@pytest.mark.parametrize("usage", [Usage(10, None, 5.0, 1, 1, None, 1), Usage(0, 0)])
def test_what_was_not_measured_is_unknown(usage: Usage) -> None:
    assert estimate(SHIPPED, usage) == Energy("unknown", None, None, None)


def test_every_coefficient_has_a_source() -> None:
    assert len(SHIPPED.sources) == 7
    assert all("20" in source and "(" in source for source in SHIPPED.sources)


def test_a_coefficient_without_a_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / COEFFICIENTS_FILE).parent.mkdir()
    text = (shipped_path("resources") / COEFFICIENTS_FILE).read_text()
    (tmp_path / COEFFICIENTS_FILE).write_text(text.replace("  source: US EPA eGRID2023, subregion SPNO\n", ""))
    with pytest.raises(DeclarationInvalid, match=r"energy\.yaml: grid\.source"):
        load_coefficients(tmp_path)
