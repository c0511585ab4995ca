"""Policies and measures in plain English, for reviewers who do not read YAML."""

from collections.abc import Mapping

import h3

from kfm_pipelines.care.policies import Policy
from kfm_pipelines.care.review.page.content import MeasureRow, RuleSentence
from kfm_pipelines.care.rules import Displace, Generalise, Group, Leave, MaskRaster, Omit, Rule, Suppress

NOT_DISCLOSED = "not disclosed"
_TOO_FEW = "There are too few records to disclose it safely."

_MEASURES: Mapping[str, tuple[str, str]] = {
    "rows_in": ("Records that went in", "Those behind the release, rounded down to a multiple of the minimum count."),
    "rows_out": ("Rows published", "Rows of the released table."),
    "records_without_place": ("Records without a place", "Published, but nothing says where they are."),
    "cells_released": ("Cells released", "Hexagons that appear in the release."),
    "cells_suppressed": (
        "Cells held back",
        "Hexagons with too few records, which are left out or counted together; rounded down as well.",
    ),
    "smallest_cell": ("Smallest released cell", "No released cell stands for fewer records than this."),
    "displacement_m": ("Distance points were moved", "Half of the points were moved less far than this."),
    "spatial_fit": (
        "Still in the same region",
        "Share of features published in the same large hexagon as the truth, in steps of 5 %.",
    ),
    "uncertainty_m": ("Largest uncertainty", "A true place is at most this far from where it is shown."),
}


def measure_rows(measures: Mapping[str, object]) -> tuple[MeasureRow, ...]:
    """Returns known measures in reading order, then others by their own names."""
    known = [name for name in _MEASURES if name in measures]
    return tuple(_measure_row(name, measures[name]) for name in [*known, *sorted(set(measures) - set(known))])


def _measure_row(name: str, value: object) -> MeasureRow:
    title, explanation = _MEASURES.get(name, (name, ""))
    if value is None:
        return MeasureRow(title, NOT_DISCLOSED, f"{explanation} {_TOO_FEW}".strip())
    if name == "displacement_m" and isinstance(value, Mapping):
        low, middle, high = (_format_measure(name, value.get(share)) for share in ("p05", "p50", "p95"))
        return MeasureRow(title, middle, f"{explanation} Nine in ten were moved between {low} and {high}.")
    return MeasureRow(title, _format_measure(name, value), explanation)


def _format_measure(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if name.endswith("_m"):
        return format_distance(value)
    if name == "spatial_fit":
        return f"{value:.0%}"
    return f"{value:,}"


def format_distance(metres: float) -> str:
    if metres < 1000:
        return f"{metres:,.0f} m"
    return f"{metres / 1000:,.0f} km" if metres >= 99_500 else f"{metres / 1000:.3g} km"


def rule_sentences(policy: Policy) -> list[RuleSentence]:
    if policy.is_open:
        return [RuleSentence("open", "any", "Published as it is.")]
    sentences: list[RuleSentence] = []
    for sensitivity, rules in policy.classes.items():
        for kind, rule in rules.rules.items():
            sentences.append(RuleSentence(sensitivity, kind, _rule_sentence(rule, policy.minimum_count)))
        if rules.raster is not None:
            sentences.append(RuleSentence(sensitivity, "raster", _raster_sentence(rules.raster)))
    return sentences


def _rule_sentence(rule: Rule, least: int) -> str:
    match rule:
        case Leave():
            return "The place is published as it is."
        case Generalise(resolution=resolution):
            return (
                f"The place becomes a hexagon of about {_format_area(resolution)} (H3 resolution {resolution}). "
                f"Hexagons with fewer than {least} features are not shown; their records lose their place. The others "
                f"show a multiple of {least}; the records beyond that lose their place as well."
            )
        case Displace(min_m=nearest, max_m=farthest, reason=reason):
            return (
                f"The point is moved by {format_distance(nearest)} to {format_distance(farthest)}, in a direction and "
                f"by a distance derived from the secret key. Reason: {reason}"
            )
        case Group(resolutions=resolutions, by=by):
            return _group_sentence(resolutions, by, least)
        case Suppress():
            return f"The record is published without its place; nothing is published when there are fewer than {least}."
        case Omit():
            return "The record is neither published nor counted."


def _group_sentence(resolutions: list[int], by: list[str], least: int) -> str:
    sizes = " and ".join(
        f"{_format_area(resolution)} (H3 resolution {resolution})" for resolution in sorted(resolutions)
    )
    apart = f", separately by {', '.join(by)}" if by else ""
    return (
        f"Only the number of features is published, in hexagons of about {sizes}{apart}, rounded down to a multiple "
        f"of {least}. Hexagons with fewer than {least} are counted together, without a place."
    )


def _raster_sentence(rule: MaskRaster) -> str:
    what = "get the mean of all of them" if rule.method == "aggregate" else "are left empty"
    return f"Cells under a footprint, widened to a hexagon of about {_format_area(rule.resolution)}, {what}."


def _format_area(resolution: int) -> str:
    """On average over the world, in figures people can keep in mind."""
    square_km = h3.average_hexagon_area(resolution, unit="km^2")
    return f"{float(f'{square_km:.2g}'):,.0f} km²"
