"""The review page in a browser: both maps are visible, nothing is wider than the window, no server is contacted."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from PIL import Image

from kfm_pipelines.care.review.page.content import ReviewView
from kfm_pipelines.care.review.page.page import render_page
from kfm_pipelines_tests.fixtures.care.review_page import HOSTILE, public_review, restricted_review

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
WIDTHS = (1280, 400)
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip

# Only in the copy for a test: the page itself runs no script, so its policy needs an exception.
ASK = """<script>
addEventListener("load", () => {
  const boxes = [...document.images].map((image) => image.getBoundingClientRect());
  parent.document.title = JSON.stringify({
    inner: innerWidth,
    wide: document.documentElement.scrollWidth,
    natural: [...document.images].map((image) => image.naturalWidth),
    widths: boxes.map((box) => Math.round(box.width)),
    tops: boxes.map((box) => Math.round(box.top)),
  });
});
</script>"""


def chromium(profile: Path, *arguments: str) -> str:
    assert CHROMIUM is not None
    command = [CHROMIUM, *QUIET, f"--user-data-dir={profile}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=90).stdout


def framed(folder: Path, page: str, width: int) -> str:
    """Puts the page into a frame, because Chromium's windows are at least 500 pixels wide."""
    (folder / "page.html").write_text(page, encoding="utf-8")
    (folder / "frame.html").write_text(
        '<!doctype html><title>waiting</title><body style="margin:0">'
        f'<iframe src="page.html" style="width:{width}px;height:3000px;border:0"></iframe>'
    )
    return (folder / "frame.html").as_uri()


@dataclass(frozen=True)
class Seen:
    """What the browser measures on a page."""

    inner: int
    wide: int
    natural: list[int]
    widths: list[int]
    tops: list[int]


def seen(folder: Path, review: ReviewView, width: int) -> Seen:
    page = render_page(review).replace("style-src", "script-src 'unsafe-inline'; style-src", 1)
    address = framed(folder, page.replace("</body>", f"{ASK}</body>"), width)
    dom = chromium(folder / "profile", "--allow-file-access-from-files", "--dump-dom", address)
    found = re.search("<title>(.*?)</title>", dom)
    assert found is not None
    answer = Seen(**json.loads(unescape(found.group(1))))
    assert answer.inner == width
    return answer


@pytest.mark.parametrize("width", WIDTHS)
def test_a_reviewer_sees_both_maps_within_the_window(tmp_path: Path, width: int) -> None:
    answer = seen(tmp_path, restricted_review(), width)
    assert answer.natural == [1152, 1152]
    assert all(found >= 350 for found in answer.widths)
    before, after = answer.tops
    assert (before == after) == (width > 700)  # side by side, or one below the other
    assert answer.wide == width


def test_the_public_sees_one_map(tmp_path: Path) -> None:
    assert seen(tmp_path, public_review(), WIDTHS[0]).natural == [1152]


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window_whatever_the_data(tmp_path: Path, width: int) -> None:
    plain = restricted_review()
    long = replace(
        plain,
        title=HOSTILE,
        key=HOSTILE,
        release_digest="f" * 900,
        policy=replace(plain.policy, reason=HOSTILE, authority=HOSTILE, labels=(HOSTILE,), wording=HOSTILE),
    )
    assert seen(tmp_path, long, width).wide == width


@pytest.mark.parametrize("has_policy", [True, False])
def test_the_page_contacts_no_server_and_runs_no_script_even_if_they_got_in(tmp_path: Path, has_policy: bool) -> None:
    with listening() as (address, asked_for):
        smuggled = (
            f'<img src="{address}/a.png"><link rel="stylesheet" href="{address}/b.css">'
            "<script>document.title = 'it ran'</script></body>"
        )
        page = render_page(restricted_review()).replace("</body>", smuggled)
        (tmp_path / "page.html").write_text(
            page if has_policy else page.replace("Content-Security-Policy", "nothing"), "utf-8"
        )
        dom = chromium(tmp_path / "profile", "--dump-dom", (tmp_path / "page.html").as_uri())
    assert asked_for == ([] if has_policy else ["/a.png", "/b.css"])
    assert ("<title>Restricted review: Heritage sites" in dom) is has_policy


@contextmanager
def listening() -> Iterator[tuple[str, list[str]]]:
    """Runs a server that records the requested paths."""
    asked_for: list[str] = []

    class Remember(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked_for.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Remember) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked_for
        server.shutdown()
        asked_for.sort()


def test_a_picture_of_the_page_is_not_blank(tmp_path: Path) -> None:
    width = WIDTHS[0]
    address = framed(tmp_path, render_page(restricted_review()), width)
    shot = tmp_path / "page.png"
    chromium(tmp_path / "profile", f"--window-size={max(width, 500)},1400", f"--screenshot={shot}", address)
    image = np.asarray(Image.open(shot).convert("RGB")).astype(int)[:, :width]
    for colour in ("#fff4d6", "#e69f00", "#5b2a86", "#b3cfe6"):  # the banner, two classes before, a cell after
        wanted = [int(colour[start : start + 2], 16) for start in (1, 3, 5)]
        assert (np.abs(image - wanted) <= 3).all(axis=2).sum() > 20, colour
