"""What was masked once stays masked: history made again is never shown under a laxer policy, nor an older one."""

import pytest

from kfm_pipelines.errors import PolicyRefused
from kfm_pipelines.operations import inputs
from kfm_pipelines.operations.exchanged_policies import laxer_policies, refuse_laxer_policy
from kfm_pipelines_tests.care.register import KEY, Register, sites, with_reviewer
from kfm_pipelines_tests.orchestration.given import declared_anew
from kfm_pipelines_tests.publications import publish
from kfm_pipelines_tests.site import Site

pytestmark = pytest.mark.slow

NEXT = KEY.replace("v1-0-0", "v1-0-1")


@pytest.fixture
def register(site: Site) -> Register:
    """With a release that was masked, reviewed and published."""
    register = with_reviewer(site)
    register.publish(sites(register.dataset))
    return register


def test_a_new_version_cannot_exchange_the_policy_of_all_history(
    register: Register, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        pytest.fail("an object was read")

    before = register.site.tree()
    site = declared_anew(
        register.site,
        "heritage-sites",
        lambda document: document.update(
            policy="not-sensitive", review="none", key={**document["key"], "transform_version": "v1-0-1"}
        ),
    )
    dataset = site.workshop.datasets["heritage/sites"]
    site.workshop.database.execute(
        "INSERT INTO kfm.keys (key, dataset, window_start, window_end, inputs_from)"
        " SELECT %(next)s, dataset, window_start, window_end, key FROM kfm.keys",
        {"next": NEXT},
    )
    with monkeypatch.context() as patch:
        patch.setattr(inputs, "fetch", read)
        publish(site.workshop, dataset, [NEXT], "a-run")
    said = "its inputs are masked by policy heritage-sites, and heritage/sites@v1-0-1 names not-sensitive"
    assert register.reason().startswith(f"care: {KEY}: {said}")
    assert register.site.tree() == before
    with pytest.raises(PolicyRefused, match=said):
        refuse_laxer_policy(site.workshop, dataset, KEY)
    assert laxer_policies(site.workshop, dataset, [KEY, NEXT]).keys() == {KEY}
    # The same policy decides, in whatever version.
    assert laxer_policies(site.workshop, register.dataset, [KEY]) == {}
    site.workshop.close()
