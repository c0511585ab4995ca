"""Every sample is a publishable object of its dataset, and the same bytes every time."""

import hashlib
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from kfm_pipelines.events import normalise, resolve_event
from kfm_pipelines.gates import judge_schema
from kfm_pipelines.producer.messages import s3_notification
from kfm_pipelines.producer.samples import SAMPLES
from kfm_pipelines.producer.samples.sample import hours, months, tuesdays
from kfm_pipelines.stages.compute.process import process
from kfm_pipelines_tests.fixtures.events.notices import declared
from kfm_pipelines_tests.fixtures.gates.subjects import area_of, sources, subject_of

AT_03 = datetime(2025, 12, 4, 3, tzinfo=UTC)


def test_every_dataset_of_objects_has_samples() -> None:
    assert sorted(SAMPLES) == [name for name, dataset in declared().items() if not dataset.input.upstream]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_resolves_to_its_dataset_and_window(name: str) -> None:
    for start in SAMPLES[name].windows(AT_03, 3):
        key, content = SAMPLES[name].make(start)
        bucket = declared()[name].input.bucket
        (notice,) = normalise(json.dumps(s3_notification(bucket, key, "abc", len(content), None, AT_03)))
        event = resolve_event(notice, declared())
        assert (event.dataset, event.window_start) == (name, start)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_passes_the_schema_gate(name: str, seed: int) -> None:
    dataset = declared()[name]
    first, end = SAMPLES[name].windows(AT_03, 2)
    table = process(dataset, sources(name, first, seed), area_of(dataset)).table
    verdict = judge_schema(subject_of(table, dataset, (first, end)))
    least = 1 if dataset.processor == "scene" and dataset.key.h3_res == "none" else 21
    assert (table.num_rows >= least, verdict.findings) == (True, ())


@pytest.mark.parametrize("name", SAMPLES)
def test_other_windows_and_other_seeds_differ(name: str) -> None:
    first, second = SAMPLES[name].windows(AT_03, 2)
    make = SAMPLES[name].make
    assert len({make(first), make(second), make(first, seed=1)}) == 3
    assert make(first) == make(first)


@pytest.mark.slow
def test_the_same_windows_are_the_same_bytes_in_another_process() -> None:
    program = (
        "import hashlib, json; from datetime import *; from kfm_pipelines.producer.samples import SAMPLES;"
        "at = datetime(2025, 12, 4, 3, tzinfo=timezone.utc);"
        "digest = lambda one: hashlib.sha256(b''.join(one.values())).hexdigest();"
        "print(json.dumps({n: digest(s.objects(at)) for n, s in SAMPLES.items()}))"
    )
    path = os.pathsep.join(sys.path)
    elsewhere = [
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": path, "TZ": "Asia/Tokyo"},
        ).stdout
        for hash_seed in ("1", "2")
    ]
    here = {
        name: hashlib.sha256(b"".join(sample.objects(AT_03).values())).hexdigest() for name, sample in SAMPLES.items()
    }
    assert [json.loads(output) for output in elsewhere] == [here] * 2


def test_windows_are_consecutive_from_the_one_that_contains_the_start() -> None:
    late = AT_03 + timedelta(minutes=59)
    assert hours(late, 3) == tuple(AT_03 + timedelta(hours=step) for step in range(3))
    assert tuesdays(late, 2) == (datetime(2025, 12, 2, tzinfo=UTC), datetime(2025, 12, 9, tzinfo=UTC))
    assert tuesdays(datetime(2025, 12, 2, tzinfo=UTC), 1) == (datetime(2025, 12, 2, tzinfo=UTC),)
    assert months(late, 2) == (datetime(2025, 12, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC))
    assert hours(late, 0) == tuesdays(late, 0) == months(late, 0) == ()
