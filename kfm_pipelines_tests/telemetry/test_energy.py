"""Energy and carbon against a reckoning by hand; what is unknown stays unknown."""

from pathlib import Path

import pytest

from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines.settings import shipped
from kfm_pipelines.telemetry.energy import FILE, Energy, energy_of, load_coefficients
from kfm_pipelines.telemetry.usage import Usage

SHIPPED = load_coefficients(shipped("resources"))


def test_an_hour_of_one_busy_processor() -> None:
    """3600 s at 3.5 W are 12,600 Ws in the machine and 1.135 times that in the data centre: 14,301 Ws or 3.9725 Wh.
    At 394 g for a kilowatt-hour that is 1.565165 g."""
    energy = energy_of(SHIPPED, Usage(3600, 3600))
    assert energy.method == "estimated"
    assert energy.watt_seconds == pytest.approx(14_301.0)
    assert energy.carbon_grams == pytest.approx(1.565165)


def test_what_is_held_idle_and_in_memory_counts_too() -> None:
    """100 s busy of 400 s held: 400 * 0.74 + 100 * 2.76 = 572 Ws; 50 GB s at 0.392 W are 19.6 Ws; times 1.135."""
    energy = energy_of(SHIPPED, Usage(400, 100, gigabyte_seconds=50))
    assert energy.watt_seconds == pytest.approx((572 + 19.6) * 1.135)


@pytest.mark.parametrize("usage", [Usage(10, None, 5.0, 1, 1, None, 1), Usage(0, 0)])
def test_what_was_not_measured_is_unknown(usage: Usage) -> None:
    assert energy_of(SHIPPED, usage) == Energy("unknown", None, None, None)


def test_every_coefficient_says_where_it_comes_from() -> None:
    assert len(SHIPPED.sources) == 7
    assert all("20" in source and "(" in source for source in SHIPPED.sources)


def test_a_coefficient_without_a_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).parent.mkdir()
    text = (shipped("resources") / FILE).read_text()
    (tmp_path / FILE).write_text(text.replace("  source: US EPA eGRID2023, subregion SPNO\n", ""))
    with pytest.raises(DeclarationInvalid, match=r"energy\.yaml: grid\.source"):
        load_coefficients(tmp_path)
