"""Objects are fetched ahead of their use, and those that keys share are fetched once."""

import dataclasses
from collections.abc import Callable

from kfm_pipelines.events import IngestEvent
from kfm_pipelines.stages.compute import inputs
from kfm_pipelines.stages.compute.inputs import Fetcher
from kfm_pipelines.stages.compute.members import FetchedObject, FetchedObjects
from kfm_pipelines_tests.fixtures.events.notices import event


def answer_from(asked: list[str]) -> Callable[[IngestEvent], FetchedObjects]:
    """Stands for S3 and notes the objects that it was asked for."""

    def answer(event: IngestEvent) -> FetchedObjects:
        asked.append(event.object_key)
        return {event.asset_uri: FetchedObject(event.object_key.encode() * 100, str(event.etag))}

    return answer


def name_of(fetched: FetchedObjects) -> str:
    [one] = fetched.values()
    return one.data[:1].decode()


def shared(names: str, members: int) -> list[IngestEvent]:
    """The events of members that share these objects, in the order in which they are used."""
    return [
        dataclasses.replace(event(), object_key=name, identity=f"{name} of {member}")
        for member in range(members)
        for name in names
    ]


def test_an_object_that_keys_share_is_fetched_once() -> None:
    fetched: list[str] = []
    events = shared("abc", members=105)
    with Fetcher(answer_from(fetched), events, keep_bytes=1000) as fetcher:
        assert [name_of(fetcher.fetch(one)) for one in events] == [*"abc"] * 105
    assert sorted(fetched) == ["a", "b", "c"]
    assert fetcher.reused == 3 * 104


def test_more_objects_than_are_fetched_ahead_are_fetched_once_too() -> None:
    fetched: list[str] = []
    names = "abcdefghijklmnopqrstuvwxyz"
    assert len(names) > inputs.OBJECTS_AHEAD
    events = shared(names, members=3)
    with Fetcher(answer_from(fetched), events, keep_bytes=10_000) as fetcher:
        assert [name_of(fetcher.fetch(one)) for one in events] == [*names] * 3
    assert sorted(fetched) == [*names]


def test_what_does_not_fit_is_fetched_again_and_is_the_same() -> None:
    fetched: list[str] = []
    events = shared("abc", members=3)
    with Fetcher(answer_from(fetched), events, keep_bytes=250) as fetcher:
        assert [name_of(fetcher.fetch(one)) for one in events] == [*"abc"] * 3
    assert len(fetched) == 9


def test_an_object_larger_than_the_room_is_kept_while_it_is_the_last() -> None:
    fetched: list[str] = []
    events = shared("a", members=5)
    with Fetcher(answer_from(fetched), events, keep_bytes=1) as fetcher:
        for one in events:
            fetcher.fetch(one)
    assert fetched == ["a"]


def test_another_version_is_another_object() -> None:
    fetched: list[str] = []
    first, second = (dataclasses.replace(event(), object_key="a", version_id=version) for version in "12")
    with Fetcher(answer_from(fetched), [first, second, first], keep_bytes=1000) as fetcher:
        for one in (first, second, first):
            fetcher.fetch(one)
    assert fetched == ["a", "a"]


def test_objects_that_nobody_shares_are_not_kept() -> None:
    fetched: list[str] = []
    events = shared("ab", members=1)
    with Fetcher(answer_from(fetched), events) as fetcher:
        for one in events:
            fetcher.fetch(one)
        fetcher.fetch(events[0])
    assert sorted(fetched) == ["a", "a", "b"]
