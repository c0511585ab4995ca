"""`kfm metrics`: the metrics of all processes of this home, for Prometheus. Needs no database and no queue."""

import os
from pathlib import Path
from typing import Any

import click

from kfm_pipelines.console.output import console, json_option, print_json, respond
from kfm_pipelines.console.session import stop_on_signal
from kfm_pipelines.settings import TELEMETRY_FOLDER, home_directory, metrics_port


@click.command()
@click.option("--serve", is_flag=True, help="Serve Prometheus on this machine until Ctrl-C.")
@click.option("--port", type=click.IntRange(1, 65_535), help="Port to serve on; KFM_METRICS_PORT or 9464 by default.")
@json_option
def metrics(serve: bool, port: int | None, as_json: bool) -> None:
    """Print the metrics in Prometheus's text format, or serve them."""
    if port and not serve:
        raise click.UsageError("--port goes with --serve")
    folder = home_directory(os.environ) / TELEMETRY_FOLDER
    if serve:
        _serve(folder, port or metrics_port(), as_json)
    elif as_json:
        print_json(_document(folder))
    else:
        from kfm_pipelines.telemetry.metrics.scrape import Exposition

        click.echo(Exposition(folder).text(), nl=False)


def _serve(folder: Path, port: int | None, as_json: bool) -> None:
    """Insists on a port that was asked for; else takes the usual one or any free port."""
    from kfm_pipelines.telemetry.metrics.scrape import DEFAULT_PORT, serve_metrics

    stop = stop_on_signal()
    with serve_metrics(folder, port or DEFAULT_PORT, or_any_free_port=port is None) as url:
        respond({"metrics": url}, lambda: console.print(f"Metrics      {url}"), as_json=as_json)
        stop.wait()


def _document(folder: Path) -> dict[str, Any]:
    from kfm_pipelines.telemetry.metrics.names import METRICS
    from kfm_pipelines.telemetry.metrics.reader import read_totals

    totals = read_totals(folder)

    def fields(value: Any) -> dict[str, Any]:
        return {"value": value} if isinstance(value, float | int) else {"count": value.count, "sum": value.total}

    return {
        metric.name: [
            {"labels": dict(zip(metric.labels, labels, strict=True)), **fields(value)}
            for labels, value in totals.series(metric.name)
        ]
        for metric in METRICS
    }
