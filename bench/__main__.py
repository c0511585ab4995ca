"""`make bench`: run every benchmark, print what it measured, write bench/results.json."""

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from bench.budget import requests_and_messages, syncs
from bench.daemon.burst import burst_through_the_daemon
from bench.daemon.creation import creation_of_a_run
from bench.daemon.demo import demo_from_first_event_to_last_key
from bench.daemon.idle import event_to_item_when_idle
from bench.daemon.keys_per_minute import keys_per_minute_batched
from bench.daemon.recovery import recovery_after_a_kill
from bench.drain_rate import drain_against_bare_loop
from bench.gates import gates_share, gates_share_of_masked, gates_share_with_suite
from bench.growth import one_worker_over_many_keys
from bench.latency import s3_with_latency
from bench.masking import masking_against_bare_cells, masking_memory
from bench.measurement import Measurement
from bench.price import price_of_guarantees_files, price_of_guarantees_s3
from bench.publishing import publish_cost_as_the_collection_grows
from bench.raster import raster_against_rasterio
from bench.replaying import a_year_replayed
from bench.sinks.graph import graph_upserts
from bench.sinks.tables import share_of_the_sinks, table_commits_as_the_table_grows, upsert_into_a_million_rows
from bench.telemetry import telemetry_of_a_run

BENCHMARKS: tuple[Callable[[Path], Measurement | list[Measurement]], ...] = (
    price_of_guarantees_files,
    price_of_guarantees_s3,
    requests_and_messages,
    syncs,
    drain_against_bare_loop,
    keys_per_minute_batched,
    masking_against_bare_cells,
    masking_memory,
    raster_against_rasterio,
    gates_share,
    gates_share_with_suite,
    gates_share_of_masked,
    publish_cost_as_the_collection_grows,
    a_year_replayed,
    telemetry_of_a_run,
    share_of_the_sinks,
    upsert_into_a_million_rows,
    table_commits_as_the_table_grows,
    creation_of_a_run,
    burst_through_the_daemon,
    recovery_after_a_kill,
    event_to_item_when_idle,
    demo_from_first_event_to_last_key,
    s3_with_latency,
    one_worker_over_many_keys,
    graph_upserts,
)
RESULTS = Path(__file__).parent / "results.json"


def main() -> None:
    """Runs the benchmarks named on the command line, or all. Results of the others stay as they are."""
    unknown = set(sys.argv[1:]) - {benchmark.__name__ for benchmark in BENCHMARKS}
    if unknown:
        raise SystemExit(f"no benchmark is called {min(unknown)}")
    for benchmark in BENCHMARKS:
        if len(sys.argv) == 1 or benchmark.__name__ in sys.argv:
            with tempfile.TemporaryDirectory(prefix="kfm-bench-", ignore_cleanup_errors=True) as folder:
                # The embedded Postgres runs as a user of its own when we are root, and has to reach its files.
                Path(folder).chmod(0o711)
                result = benchmark(Path(folder))
            _report(result if isinstance(result, list) else [result])


def _report(measured: list[Measurement]) -> None:
    """Prints the results and puts them in the file at once, because all benchmarks together take most of an hour."""
    results = {one["name"]: one for one in json.loads(RESULTS.read_text())} if RESULTS.exists() else {}
    for one in measured:
        results[one.name] = {**asdict(one), "ratio": one.ratio}
        print(f"{one.name}: {one.value:.2f} {one.unit}, {one.ratio:.2f} of {one.baseline:.2f}", flush=True)
    RESULTS.write_text(json.dumps(list(results.values()), indent=2) + "\n")


if __name__ == "__main__":
    main()
