"""Maps of published keys: a limited number per run, and the most recently used ones are cached."""

import pytest

from kfm_pipelines.care.review.page import maps
from kfm_pipelines.care.review.page.places import MapPlaces
from kfm_pipelines.stages import previews
from kfm_pipelines_tests.fixtures.sites.site import Site


def test_the_number_of_maps_per_run_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {str(n): n for n in range(9)}
    monkeypatch.setattr(previews, "_places", lambda *args: int(args[-1]) // 2 * 2)
    monkeypatch.setattr(previews, "_appearance_digest", lambda places: places)
    monkeypatch.setattr(previews, "_draw_cached", lambda *args: str(args[-1]).encode())
    monkeypatch.setattr(previews, "MAX_MAPS_PER_RUN", 2)
    pictures = previews.published_maps(None, None, tables)  # type: ignore[arg-type]
    assert pictures == {"0": b"0", "1": b"0", "2": b"2", "3": b"2"}


def test_the_most_recently_used_maps_are_cached(untouched: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def counting(places: MapPlaces, *_: object, **__: object) -> bytes:
        drawn.append(places.without_place)
        return b"png"

    monkeypatch.setattr(maps, "draw_map", counting)
    monkeypatch.setattr(previews, "_map_cache", {})
    monkeypatch.setattr(previews, "MAX_CACHED_MAPS", 2)
    for without_place in (1, 2, 1, 3, 1, 2):
        places = MapPlaces(without_place=without_place)
        previews._draw_cached(untouched.services, untouched.dataset, previews._appearance_digest(places), places)
    assert drawn == [1, 2, 3, 2]
    assert len(previews._map_cache) == 2
