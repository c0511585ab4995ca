"""Masked data stays masked: reprocessed history is never published under a laxer or an older policy."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kfm_pipelines.care.review import decide as exempt
from kfm_pipelines.errors import KeyBusy, PolicyRefused
from kfm_pipelines.services import Services
from kfm_pipelines.stages.batch import Batch
from kfm_pipelines.stages.compute import members
from kfm_pipelines.stages.config.changes import laxer_policies, refuse_laxer_policy
from kfm_pipelines.stages.trigger import RunTrigger
from kfm_pipelines.state.keys import Claims
from kfm_pipelines_tests.fixtures.care.register import KEY, Register, sites, with_reviewer
from kfm_pipelines_tests.fixtures.runs.batches import publish
from kfm_pipelines_tests.fixtures.runs.dispatch import declared_anew
from kfm_pipelines_tests.fixtures.runs.replay_runs import close_until, last_of, plan_replay
from kfm_pipelines_tests.fixtures.sites.site import Site

pytestmark = pytest.mark.slow

NEXT = KEY.replace("v1-0-0", "v1-0-1")


@pytest.fixture
def register(site: Site) -> Register:
    """A register with a masked, reviewed and published release."""
    watermark = {"out_of_order": "1 d", "idle_after": "1 d"}
    register = with_reviewer(declared_anew(site, "heritage-sites", lambda one: one.update(watermark=watermark)))
    register.publish(sites(register.dataset))
    return register


def test_a_new_version_cannot_replace_the_policy_of_all_history(
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
    dataset = site.services.datasets["heritage/sites"]
    site.services.database.execute(
        "INSERT INTO kfm.keys (key, dataset, window_start, window_end, inputs_from)"
        " SELECT %(next)s, dataset, window_start, window_end, key FROM kfm.keys",
        {"next": NEXT},
    )
    with monkeypatch.context() as patch:
        patch.setattr(members, "fetch", read)
        publish(site.services, dataset, [NEXT], "a-run")
    reason = "its inputs are masked by policy heritage-sites, and heritage/sites@v1-0-1 names not-sensitive"
    assert register.reason(NEXT).startswith(f"care: {KEY}: {reason}")
    assert register.site.tree() == before
    with pytest.raises(PolicyRefused, match=reason):
        refuse_laxer_policy(site.services, dataset, KEY)
    assert laxer_policies(site.services, dataset, [KEY, NEXT]).keys() == {KEY}
    # The same policy decides, in whatever version.
    assert laxer_policies(site.services, register.dataset, [KEY]) == {}
    site.services.close()


def run(register: Register, purpose: RunTrigger) -> Batch:
    return publish(register.site.services, register.dataset, [KEY], "a-run", purpose)


def reproduced(register: Register) -> str:
    """Returns the note of a replay of the key, which must not change anything visible."""
    before = register.site.tree("catalog", "objects", "processed")
    replay = plan_replay(register.site.services, "heritage/sites", [KEY])
    note = run(register, RunTrigger(replay=replay)).notes[KEY]
    assert register.site.tree("catalog", "objects", "processed") == before
    return note


def resolutions(register: Register) -> set[str]:
    """Returns the resolutions of the published H3 cells."""
    return {str(cell)[1] for cell in register.published()["cell"].to_pylist() if cell}


def stricter(register: Register) -> Register:
    """Publishes a new policy version with larger cells."""
    path = register.site.services.settings.resources / "policies" / "heritage-sites.yaml"
    text = path.read_text()
    assert "method: generalise, resolution: 5" in text
    path.write_text(text.replace("generalise, resolution: 5", "generalise, resolution: 4").replace("n: 1", "n: 2"))
    return Register(replace(register.site, services=Services(register.site.services.settings)))


def test_current_policies_and_exemptions_apply_to_earlier_releases(register: Register) -> None:
    site, database = register.site, register.site.services.database
    close_until(site.services, "heritage/sites", datetime(2027, 1, 1, tzinfo=UTC))
    given = exempt.grant_exemption(
        site.services, "heritage/sites", "", site.services.today(), register.private_key, "for the court"
    )
    assert reproduced(register).endswith(f"it was made under no exemption and is under exemption {given.id}")
    exempt.end_exemption(site.services, given.id, register.private_key, "the case is over")
    assert resolutions(register) == {"5"}

    # The old bytes do not come back; a backfill publishes what the new policy leaves, once it has been seen.
    now = stricter(register)
    assert reproduced(now).endswith("the policy was heritage-sites@1 and is heritage-sites@2")
    assert run(now, RunTrigger(backfill=True)).awaiting_review == {KEY}
    waiting, last = now.waiting(), last_of(site.services, KEY)
    before = database.fetch("SELECT * FROM kfm.keys"), site.tree("work")
    assert reproduced(now) == f"{KEY}: a release of it awaits review; that comes first"
    assert (database.fetch("SELECT * FROM kfm.keys"), site.tree("work")) == before
    with pytest.raises(KeyBusy, match="awaits review"):
        Claims(database, "a-run", 60, skip_in_review=True).take(KEY)
    assert (now.waiting(), last_of(site.services, KEY)) == (waiting, last)
    now.approve()
    assert run(now, RunTrigger(backfill=True)).notes == {}
    assert resolutions(now) == {"4"}
    now.site.services.close()
