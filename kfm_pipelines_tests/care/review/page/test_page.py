"""Only reviewers see the true places next to what would be published."""

import re
from base64 import b64encode
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from kfm_pipelines.care.review.page import view
from kfm_pipelines.care.review.page.content import (
    CellChange,
    MeasureRow,
    PolicyView,
    ReleaseDifference,
    ReleaseSample,
    ReviewView,
    RuleSentence,
    SampleColumn,
    Verification,
)
from kfm_pipelines.care.review.page.page import MAX_CHANGES, render_page
from kfm_pipelines.errors import PolicyRefused
from kfm_pipelines_tests.fixtures.care.review_page import (
    HOSTILE,
    maps,
    policy,
    policy_view,
    public_review,
    register,
    released,
    restricted_review,
)


class Elements(HTMLParser):
    """Collects the elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def pictures(page: str) -> list[str | None]:
    return [image["src"] for image in Elements(page).all("img")]


def as_uri(png: bytes) -> str:
    return f"data:image/png;base64,{b64encode(png).decode()}"


def test_an_authorised_reviewer_sees_before_and_after_side_by_side_and_a_warning() -> None:
    page = render_page(restricted_review())
    before, after = maps()
    assert pictures(page) == [as_uri(before), as_uri(after)]
    assert "Restricted: shows true places. Do not copy or forward." in Elements(page).text


def test_the_public_page_has_only_the_map_of_what_is_published() -> None:
    page = render_page(public_review())
    before, after = maps()
    assert pictures(page) == [as_uri(after)]
    assert b64encode(before).decode()[200:400] not in page
    assert "estricted review" not in page
    assert "true places" not in page


def test_the_public_page_holds_no_true_coordinate_name_or_id() -> None:
    page = render_page(public_review())
    numbers = set(re.findall(r"-?\d+\.\d{3,}", page))
    assert numbers  # those of the cells
    for column in ("longitude", "latitude"):
        true = {f"{value:.3f}" for value in register()[column].to_pylist()}
        assert not true & {f"{float(number):.3f}" for number in numbers}
    assert "site-1" not in page


def test_a_public_page_cannot_be_given_a_map_of_true_places() -> None:
    with pytest.raises(PolicyRefused, match="must not contain a map of the true places"):
        replace(restricted_review(), restricted=False)


def test_a_restricted_page_without_a_map_of_true_places_has_a_note() -> None:
    page = render_page(replace(restricted_review(), before_map=None))
    assert len(pictures(page)) == 1
    assert "no map of the true places" in page


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    elements = Elements(render_page(restricted_review()))
    [csp] = [meta["content"] for meta in elements.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert csp is not None
    assert csp.startswith("default-src 'none'; img-src data:; style-src 'unsafe-inline'")
    assert {tag for tag, _ in elements.found}.isdisjoint({"script", "link", "iframe", "object", "form", "base", "a"})
    assert not re.search(r"url\(|@import|https?://", render_page(restricted_review()))


def hostile_review() -> ReviewView:
    """Every text of the view is hostile."""
    return replace(
        restricted_review(),
        key=HOSTILE,
        title=HOSTILE,
        dataset=HOSTILE,
        window=HOSTILE,
        release_digest=HOSTILE,
        content_hash=HOSTILE,
        verification=Verification(passed=False, findings=(HOSTILE,)),
        measures=(MeasureRow(HOSTILE, HOSTILE, HOSTILE),),
        sample=ReleaseSample((SampleColumn(HOSTILE),), ((HOSTILE,),), 1, (HOSTILE,)),
        difference=ReleaseDifference(1, 1, 1, 1, (CellChange(HOSTILE, 1, 0, 0, 1, 1),), (HOSTILE,), (HOSTILE,)),
        policy=PolicyView(
            name=HOSTILE,
            reason=HOSTILE,
            authority=HOSTILE,
            reviewed_on=HOSTILE,
            review_by=HOSTILE,
            labels=(HOSTILE,),
            rules=(RuleSentence(HOSTILE, HOSTILE, HOSTILE),),
            minimum_count=5,
            key_id=HOSTILE,
            kept=(HOSTILE,),
            withheld=(HOSTILE,),
            wording=HOSTILE,
        ),
    )


def test_text_from_data_and_declarations_stays_text() -> None:
    plain, hostile = Elements(render_page(restricted_review())), Elements(render_page(hostile_review()))
    assert hostile.all("script") == []
    assert len(hostile.all("img")) == len(plain.all("img"))
    assert {name for _, attributes in hostile.found for name in attributes if name.startswith("on")} == set()
    assert hostile.text.count("<script>alert(1)</script>") >= 25
    assert "{{ 7*7 }}" in hostile.text


def test_text_can_neither_reorder_nor_hide_other_text() -> None:
    page = render_page(hostile_review())
    assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b-\u200f\x00-\x08]", page)
    assert "[U+202E]gnp.exe[U+2066][U+0007]" in page


def test_a_command_with_a_hostile_key_is_one_argument_for_a_shell() -> None:
    page = render_page(replace(restricted_review(), key="a'; rm -rf ~; '"))
    assert """kfm review approve 'a'"'"'; rm -rf ~; '"'"'' \\""" in Elements(page).text


def test_the_page_has_the_commands_for_exactly_these_bytes() -> None:
    text = Elements(render_page(restricted_review())).text
    for decision in ("approve", "reject"):
        assert (
            f"kfm review {decision} heritage-sites:kansas_statewide:5:2026-10:v1-0-0 \\\n"
            f"  --digest {'3f9a' * 16} \\\n  --key FILE --reason 'WHY'"
        ) in text


def test_a_refusal_of_the_verifier_is_displayed() -> None:
    found = Verification(passed=False, findings=("cell: 3 values are finer than resolution 5",))
    text = Elements(render_page(replace(restricted_review(), verification=found))).text
    assert "Red." in text
    assert "Green." not in text
    assert "cell: 3 values are finer than resolution 5" in text


def test_the_page_has_the_complete_policy() -> None:
    text = Elements(render_page(public_review())).text
    policy = policy_view()
    for expected in (
        policy.name,
        policy.reason,
        policy.authority,
        policy.review_by,
        *policy.labels,
        *policy.withheld,
        policy.wording,
    ):
        assert expected is not None
        assert expected in text


def test_the_first_release_has_nothing_to_be_compared_with() -> None:
    assert "This is the first release" in render_page(replace(restricted_review(), difference=None))


def test_the_number_of_listed_changes_is_limited() -> None:
    cells = tuple(CellChange(f"cell-{number}", 1, 0, 0, 0, 5) for number in range(MAX_CHANGES + 5))
    text = Elements(render_page(replace(restricted_review(), difference=ReleaseDifference(0, 45, 0, 225, cells)))).text
    assert f"cell-{MAX_CHANGES - 1}" in text
    assert f"cell-{MAX_CHANGES}" not in text
    assert f"The {MAX_CHANGES} cells that differ most, of {MAX_CHANGES + 5}." in text


def test_an_empty_release_has_a_page() -> None:
    empty = released()
    review = replace(
        public_review(),
        sample=view.sample_rows(empty, wording=policy().wording),
        difference=view.compare_releases(empty, empty),
        measures=(),
    )
    text = Elements(render_page(review)).text
    assert "The release has no rows." in text
    assert "Nothing differs from the previous revision." in text


def test_the_same_view_gives_the_same_page() -> None:
    assert render_page(restricted_review()) == render_page(restricted_review())


def test_pictures_have_alternative_text_and_headings_are_nested() -> None:
    elements = Elements(render_page(restricted_review()))
    assert all(image["alt"] for image in elements.all("img"))
    levels = [int(tag[1]) for tag, _ in elements.found if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(deeper - level <= 1 for level, deeper in pairwise(levels))
