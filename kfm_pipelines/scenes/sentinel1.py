"""Radar scenes of Sentinel-1, detected on the ground (GRD), as their bucket at AWS describes them."""

import re
from collections.abc import Mapping
from typing import Any

from kfm_pipelines.declarations.scenes import SceneProduct
from kfm_pipelines.errors import InputUnreadable
from kfm_pipelines.scenes.documents import Fields, read_json
from kfm_pipelines.scenes.facts import FolderObject, SceneFacts
from kfm_pipelines.scenes.footprint import read_footprint
from kfm_pipelines.text import quote_value

PRODUCT_INFO = "productInfo.json"
_PRODUCT = re.compile(
    r"(?P<satellite>S1[A-D])_(?P<mode>S[1-6]|IW|EW|WV)_GRD(?P<resolution>[FHM])_1S(?P<polarisation>SH|SV|DH|DV)"
    r"_\d{8}T\d{6}_\d{8}T\d{6}_(?P<orbit>\d{6})_[0-9A-F]{6}_[0-9A-F]{4}",
    re.ASCII,
)
_POLARISATIONS = {"SH": ("hh",), "SV": ("vv",), "DH": ("hh", "hv"), "DV": ("vv", "vh")}
_COSPAR = {"S1A": "2014-016A", "S1B": "2016-025A", "S1C": "2024-235A"}
# The track on the ground repeats after so many orbits, counted from an orbit of each satellite.
_ORBITS_IN_CYCLE = 175
_FIRST_ORBIT = {"S1A": 73, "S1B": 27}
# Metres between the pixels of each mode and resolution.
_SPACING = {
    ("SM", "F"): 3.5, ("SM", "H"): 10, ("SM", "M"): 40, ("IW", "H"): 10, ("IW", "M"): 40, ("EW", "H"): 25,
    ("EW", "M"): 40,
}  # fmt: skip


def sentinel1_objects(folder: str) -> tuple[FolderObject, ...]:
    return (FolderObject(PRODUCT_INFO, "product_info", "application/json", "Product by its distributor"),)


def read_sentinel1_scene(product: SceneProduct, folder: str, objects: Mapping[str, bytes]) -> SceneFacts:
    if PRODUCT_INFO not in objects:
        raise InputUnreadable(f"{folder} has no metadata: {PRODUCT_INFO} is missing")
    info = read_json(objects[PRODUCT_INFO], f"{folder}{PRODUCT_INFO}")
    named = _check_identity(folder, info)
    satellite, orbit = named["satellite"], int(named["orbit"])
    began, ended = info.time("startTime"), info.time("stopTime")
    if ended < began:
        raise InputUnreadable(f"{info.name}: stopTime is before startTime")
    platform = f"sentinel-1{satellite[-1].lower()}"
    spacing = _SPACING.get(("SM" if named["mode"].startswith("S") else named["mode"], named["resolution"]))
    sensor = {"constellation": "sentinel-1", "platform": platform, "instruments": ["c-sar"]}
    return SceneFacts(
        scene_id=named[0],
        platform=platform,
        acquired_at=began,
        cloud_cover=None,  # radar sees through clouds, by day and night
        sun_azimuth=None,
        sun_elevation=None,
        epsg=None,  # its images have control points on the ground instead
        href=folder,
        footprint=read_footprint(info.find("footprint"), f"{info.name}: footprint"),
        sensor=sensor if spacing is None else {**sensor, "gsd": spacing},
        properties=_orbit_properties(satellite, orbit),
        assets=_assets(folder, named),
    )


def _check_identity(folder: str, info: Fields) -> re.Match[str]:
    """Returns the product's name, in parts. Name, folder and the fields that repeat them must agree."""
    name, path = info.text("id"), info.text("path").strip("/")
    if not folder.endswith(f"/{path}/") or path.rpartition("/")[2] != name:
        raise InputUnreadable(f"{info.name} is about {quote_value(path)}, not its own folder")
    named = _PRODUCT.fullmatch(name)
    if named is None:
        raise InputUnreadable(f"{info.name}: id must name a GRD product of Sentinel-1, not {quote_value(name)}")
    repeated = {
        "missionId": named["satellite"],
        "mode": named["mode"],
        "polarization": named["polarisation"],
        "absoluteOrbitNumber": int(named["orbit"]),
    }
    for field, expected in repeated.items():
        found = info.whole_number(field) if isinstance(expected, int) else info.text(field)
        if found != expected:
            raise InputUnreadable(f"{info.name}: {field} is {quote_value(found)}, and the name has {expected}")
    return named


def _orbit_properties(satellite: str, orbit: int) -> dict[str, Any]:
    first = _FIRST_ORBIT.get(satellite)
    return {
        **({"sat:platform_international_designator": _COSPAR[satellite]} if satellite in _COSPAR else {}),
        "sat:absolute_orbit": orbit,
        **({} if first is None else {"sat:relative_orbit": (orbit - first) % _ORBITS_IN_CYCLE + 1}),
    }


def _assets(folder: str, named: re.Match[str]) -> dict[str, dict[str, Any]]:
    assets: dict[str, dict[str, Any]] = {}
    mode = named["mode"].lower()
    for polarisation in _POLARISATIONS[named["polarisation"]]:
        assets[polarisation] = {
            "href": f"{folder}measurement/{mode}-{polarisation}.tiff",
            "title": f"Amplitude, polarisation {polarisation.upper()}, not calibrated",
            "type": "image/tiff; application=geotiff",
            "roles": ["data", "amplitude"],
            "bands": [{"name": polarisation.upper()}],
            "data_type": "uint16",
            "nodata": 0,
        }
        for kind, roles in (("calibration", ["calibration"]), ("noise", ["noise"])):
            assets[f"{kind}-{polarisation}"] = {
                "href": f"{folder}annotation/calibration/{kind}-{mode}-{polarisation}.xml",
                "title": f"{kind.capitalize()}, polarisation {polarisation.upper()}",
                "type": "application/xml",
                "roles": ["metadata", *roles],
            }
    assets["quick_look"] = {
        "href": f"{folder}preview/quick-look.png",
        "title": "Picture of the scene by its provider",
        "type": "image/png",
        "roles": ["overview"],
    }
    return assets
