"""`kfm dlq`: what it finds, prints and refuses; and that a dry run is true to the real one."""

import json
from typing import Any

import pytest

from kfm_pipelines_tests.fixtures.runs.letters import messages_in, refusing, too_large, work_directly
from kfm_pipelines_tests.fixtures.sites.command import CommandResult, kfm, run_kfm
from kfm_pipelines_tests.fixtures.sites.processes import eventually
from kfm_pipelines_tests.fixtures.sites.site import Site

# A colour, a bell, the one-byte form of ESC [, a text that runs backwards, and what rich would take for markup.
HOSTILE = "\x1b[31mred \x07 \x9b31m \u202e [bold]loud[/bold] [/nothing] \\[/more] :key: \\"
HARMLESS = "[bold]loud[/bold] [/nothing] \\[/more] :key: \\"


def dlq(*arguments: str) -> CommandResult:
    return run_kfm("dlq", *arguments)


def listed(*arguments: str) -> set[int]:
    return {letter["letter"] for letter in dlq("list", *arguments, "--json").json["letters"]}


def refuse(site: Site, *bodies: str) -> None:
    for body in bodies:
        site.send(body)
    site.drain()


def state_of_things(site: Site) -> list[Any]:
    """Everything a redrive could change, but for the store."""
    tables = ("dead_letters", "letter_moves", "redrives", "redrive_items", "keys", "queue_totals")
    rows = [site.fetch(f"SELECT * FROM kfm.{table} ORDER BY 1, 2") for table in tables]
    return [*rows, *(intake.queue.depth() for intake in site.services.intakes)]


@pytest.mark.slow
def test_nothing_to_list_and_nothing_to_redrive(site: Site) -> None:
    assert dlq("list").out == "0 letters\n"
    assert dlq("list", "--json").json == {"letters": [], "total": 0, "classes": {}}
    for redriven in (dlq("redrive", "--class", "late"), dlq("redrive", "--older-than", "0s")):
        assert (redriven.code, redriven.out) == (0, "no open letter matches; nothing was done\n")
    assert dlq("redrive", "--class", "late", "--json").json == {
        "redrive": None, "sent": 0, "succeeded": 0, "failed": 0,
    }  # fmt: skip
    assert dlq("quarantine", "--class", "late", "--reason", "x").out == "0 letters quarantined: none\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["show", "999"], 1, "kfm: there is no dead letter 999; `kfm dlq list --state all` lists them"),
        (["show", "9" * 30], 1, "kfm: there is no dead letter 999"),
        (["redrive", "999"], 1, "kfm: there is no dead letter 999"),
        (["redrive", "999", "--dry-run"], 1, "kfm: there is no dead letter 999"),
        (["quarantine", "999", "--reason", "x"], 1, "kfm: there is no dead letter 999"),
        (["redrive", "--resume", "r0"], 1, "kfm: there is no redrive 'r0'"),
        (["redrive"], 2, "name letters, or choose them"),
        (["redrive", "--dry-run"], 2, "name letters, or choose them"),
        (["redrive", "--canary", "0", "--limit", "5"], 2, "name letters, or choose them"),
        (["redrive", "--resume", "r0", "--class", "schema"], 2, "give no others and no --dry-run"),
        (["redrive", "--resume", "r0", "1"], 2, "give no others and no --dry-run"),
        (["redrive", "--resume", "r0", "--dry-run"], 2, "give no others and no --dry-run"),
        (["redrive", "1", "--rate", "0"], 2, "--rate"),
        (["quarantine", "--reason", "x"], 2, "name letters, or choose them"),
        (["quarantine", "1"], 2, "--reason"),
        (["quarantine", "1", "--reason", " "], 2, "--reason is empty"),
        (["list", "--class", "other"], 2, "'other' is not one of"),
        (["list", "--older-than", "15"], 2, "write 90s, 15m, 2h or 7d"),
        (["list", "--state", "lost"], 2, "'lost' is not one of"),
        (["show", "one"], 2, "not a valid integer"),
    ],
)
def test_a_refusal_is_one_sentence_and_an_exit_code(
    untouched: Site, arguments: list[str], code: int, message: str
) -> None:
    answer = dlq(*arguments)

    assert (answer.code, answer.out) == (code, ""), answer.err
    assert message in answer.err
    if code == 1:
        assert len(answer.err.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_dry_run_changes_nothing_and_describes_the_real_run(site: Site) -> None:
    queue, fifo = site.services.queue, site.services.intakes[2].queue
    site.put(0, data=b"no parquet")
    assert eventually(lambda: queue.depth().waiting == 1)
    work_directly(site.services)
    queue.send("plain rubbish", {"origin": "here", "also": "there"})
    fifo.send("rubbish in a group", {"origin": "here"}, group="one")
    queue.send("rubbish with much around it", {f"own-{number}": "x" for number in range(10)})
    queue.send("x" * (1024 * 1024 - 10))
    site.drain()
    before = state_of_things(site)
    choice = ["redrive", "--class", "schema", "--canary", "0"]

    answer = dlq(*choice, "--dry-run")
    planned = dlq(*choice, "--dry-run", "--json").json

    assert state_of_things(site) == before
    assert sorted(one["would"] for one in planned["letters"] if one["would"].startswith("fail")) == [
        "fail, because it has so many attributes that none can be added",
        "fail, because it is so large that no attribute can be added",
    ]
    for one in planned["letters"]:
        assert f"letter {one['letter']} (schema): would {one['would']}\n" in answer.out
    assert answer.out.endswith("5 letters; the first 0 as a canary, then 5 a second, about 1 s. Nothing was done.\n")

    assert dlq(*choice, "--rate", "1000", "--wait", "1").code == 1  # nobody works here, so nothing is decided

    assert [one["would"] for one in planned["letters"]] == _done(site)


def _done(site: Site) -> list[str]:
    """What happened to each letter, in the words of a dry run, seen from the queues and the keys."""
    sent = {}
    for intake in site.services.intakes:
        for message in messages_in(intake.queue):
            names = ", ".join(sorted(name for name in message.attributes if not name.startswith("kfm-"))) or "none"
            group = f", group {message.group}" if message.group else ""
            letter = int(message.attributes["kfm-redrive"].rpartition(".")[2])
            sent[letter] = f"send {len(message.body)} bytes to queue {intake.queue.name}{group}, attributes: {names}"
    due = {row["key"] for row in site.fetch("SELECT key FROM kfm.keys WHERE due_at IS NOT NULL AND attempts = 0")}
    items = site.fetch(
        "SELECT l.id, l.key, i.state, i.outcome FROM kfm.redrive_items i JOIN kfm.dead_letters l ON l.id = i.letter "
        "ORDER BY i.place"
    )
    return [
        sent.get(item["id"])
        or (f"fail, because {item['outcome']}" if item["state"] == "failed" else "")
        or (f"make the key {item['key']} due again, with all its attempts" if item["key"] in due else "nothing")
        for item in items
    ]


@pytest.mark.slow
def test_every_subcommand_has_its_json(site: Site) -> None:
    refuse(site, "one", "two")

    assert dlq("list", "--limit", "1").out.strip().endswith("2 letters: 2 schema; the first 1 are listed")
    assert listed("--class", "schema", "--newer-than", "1d", "--older-than", "0s") == {1, 2}
    assert listed("--dataset", "usgs/streamflow") == listed("--key", "usgs*") == set()
    [first, second] = dlq("list", "--json").json["letters"]
    assert set(first) == {
        "letter", "state", "class", "stage", "dataset", "key", "attempts", "changed_at", "reason"
    }  # fmt: skip
    record = dlq("show", str(first["letter"]), "--json").json
    assert (record["letter"], record["class"], record["error"]) == (first["letter"], "schema", "BodyUnreadable")
    assert [move["what"] for move in record["history"]] == ["opened"]
    assert record["redrive_would"].startswith("send 3 bytes to queue")
    plan = dlq("redrive", "--class", "schema", "--dry-run", "--json").json
    assert (plan["dry_run"], len(plan["letters"]), plan["canary"], plan["rate"]) == (True, 2, 3, 5.0)
    aside = ["quarantine", str(second["letter"]), "--reason", "x", "--json"]
    assert dlq(*aside, "--dry-run").json == {"quarantined": [second["letter"]], "dry_run": True}
    assert dlq(*aside).json == {"quarantined": [second["letter"]], "dry_run": False}


@pytest.mark.slow
def test_a_successful_redrive_is_reported_in_text_and_json(site: Site) -> None:
    with refusing(site) as strict:
        too_large(strict, 3)
        strict.drain()

    answer = kfm(site.environment, "dlq", "redrive", "1", "2", "--rate", "1000", "--work")
    document = kfm(site.environment, "dlq", "redrive", "--class", "schema", "--rate", "1000", "--work", "--json")

    assert answer.code == 0
    redrive = answer.out.split()[1].rstrip(":")
    assert answer.out == f"redrive {redrive}: 2 sent, 2 succeeded, 0 failed again\n"
    lines = answer.err.splitlines()
    assert lines[-1] == f"redrive {redrive}: 2 of 2"
    assert all(line.startswith(f"redrive {redrive}: ") for line in lines)
    assert "\x1b" not in answer.err
    assert {**document.json, "redrive": ""} == {"redrive": "", "sent": 1, "succeeded": 1, "failed": 0}
    assert document.err == ""
    assert listed("--state", "closed") == {1, 2, 3}
    again = dlq("redrive", "--resume", redrive)
    assert (again.code, again.err) == (1, f"kfm: redrive {redrive} has ended: done\n")


@pytest.mark.slow
def test_letters_that_fail_again_are_open_and_the_exit_code_is_1(site: Site) -> None:
    refuse(site, "one", "two", "three")

    canary = dlq("redrive", "--class", "schema", "--canary", "1", "--rate", "1000", "--work")
    assert (canary.code, canary.out) == (1, "")
    assert "kfm: 1 of the first 1 failed again; 2 not sent: " in canary.err
    assert listed() == {1, 2, 3}

    blind = dlq("redrive", "--class", "schema", "--canary", "0", "--rate", "1000", "--work")
    assert blind.code == 1
    assert blind.out.endswith(": 3 sent, 0 succeeded, 3 failed again\n")
    assert listed() == {1, 2, 3}


@pytest.mark.slow
def test_quarantine_takes_a_letter_out_of_later_redrives_and_keeps_the_reason(site: Site) -> None:
    refuse(site, "one", "two")

    answer = dlq("quarantine", "1", "--reason", "its producer is gone")

    assert answer.out == "1 letter quarantined: 1\n"
    assert (listed(), listed("--state", "quarantined")) == ({2}, {1})
    history = dlq("show", "1", "--json").json["history"]
    assert (history[-1]["what"], history[-1]["reason"]) == ("quarantined", "its producer is gone")
    [record] = (site.data / "quarantine").rglob("*.json")
    assert json.loads(record.read_text())["history"][-1]["reason"] == "its producer is gone"
    plan = dlq("redrive", "--class", "schema", "--dry-run", "--json").json
    assert [one["letter"] for one in plan["letters"]] == [2]
    named = dlq("redrive", "2", "1", "--work")
    assert (named.code, named.out) == (1, "")
    assert named.err == "kfm: letter 1 is quarantined; only an open one can be redriven or quarantined\n"
    assert site.services.queue.depth().waiting == 0
    refuse(site, "one")
    assert listed("--state", "quarantined") == {1}


@pytest.mark.slow
def test_the_payload_is_withheld_unless_asked_for(site: Site) -> None:
    body = json.dumps({"shape": "none of ours", "password": "hunter2", "latitude": 38.97123})
    refuse(site, body)

    for arguments in (["show", "1"], ["show", "1", "--json"], ["list"], ["list", "--json"]):
        answer = dlq(*arguments)
        assert answer.code == 0
        assert "hunter2" not in answer.out
        assert "97123" not in answer.out
    assert dlq("show", "1", "--payload", "--json").json["body"] == body
    assert "hunter2" in dlq("show", "1", "--payload").out


@pytest.mark.slow
def test_nothing_hostile_reaches_the_terminal_and_nothing_is_taken_for_markup(site: Site) -> None:
    site.put(0, data=b"no parquet")
    work_directly(site.services)
    site.services.database.execute("UPDATE kfm.dead_letters SET reason = %(text)s", {"text": HOSTILE})
    refuse(site, "rubbish")
    site.services.database.execute(
        "UPDATE kfm.dead_letters SET reason = %(text)s, key = %(text)s, body = %(text)s, queue = %(text)s,"
        " message_group = %(text)s, attributes = jsonb_build_object(%(text)s::text, '') WHERE key IS NULL",
        {"text": HOSTILE},
    )
    dlq("quarantine", "2", "--reason", HOSTILE)
    unkept = dlq("list", "--state", "all", "--key", "\udcff*")

    assert (unkept.code, unkept.out) == (0, "0 letters\n")
    for arguments in (
        ["status"],
        ["status", site.key(0)],
        ["dlq", "list", "--state", "all"],
        ["dlq", "show", "1"],
        ["dlq", "show", "2", "--payload"],
        ["dlq", "redrive", "--class", "schema", "--dry-run"],
    ):
        answer = run_kfm(*arguments)
        assert (answer.code, answer.err) == (0, ""), arguments
        assert all(character.isprintable() or character == "\n" for character in answer.out), arguments
        if "redrive" not in arguments:
            assert HARMLESS in answer.out, arguments


@pytest.mark.slow
def test_a_message_that_comes_again_after_its_payload_was_forgotten_can_be_redriven(site: Site) -> None:
    refuse(site, "rubbish")
    site.services.database.execute(
        "UPDATE kfm.dead_letters SET body = '', state = 'closed', closed_at = clock_timestamp()"
    )
    refuse(site, "rubbish")

    assert dlq("show", "1", "--json").json["redrive_would"].startswith("send 7 bytes")
