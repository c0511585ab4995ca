"""`kfm up`: runs everything until Ctrl-C."""

import click

from kfm_pipelines.console.output import console, json_option, respond, stderr_console
from kfm_pipelines.console.session import open_services, stop_on_signal
from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.local.dagster import serve_recovered


@click.command()
@click.option("--port", type=click.IntRange(1, 65_535), help="Port of the Dagster UI; 3000 or a free one by default.")
@json_option
def up(port: int | None, as_json: bool) -> None:
    """Run the embedded stack with Dagster's UI and daemon, on this machine only, until Ctrl-C."""
    from kfm_pipelines.telemetry.metrics.scrape import DEFAULT_PORT, serve_metrics

    stop = stop_on_signal()
    if not as_json:
        stderr_console.print("starting Postgres, S3, SNS, SQS and Dagster on this machine; this takes a minute at most")
    with (
        open_services() as services,
        serve_metrics(
            services.settings.telemetry_folder, services.settings.metrics_port or DEFAULT_PORT, or_any_free_port=True
        ) as metrics,
        serve_recovered(services, port) as server,
    ):
        home = str(services.settings.home)
        places = {"ui": server.url, "metrics": metrics, "store": services.store.url, "home": home}
        lines = f"Dagster UI   {server.url}\nMetrics      {metrics}\nStore        {services.store.url}\n"
        if services.settings.graph_url:
            places["graph"] = services.settings.graph_url
            lines += f"Graph        {services.settings.graph_url}\n"
        hint = "In another terminal: kfm emit, kfm status. Ctrl-C stops everything."
        respond(places, lambda: console.print(lines + hint), as_json=as_json)
        while not stop.wait(1.0):
            if not server.process.alive:
                raise ServiceUnavailable(f"Dagster ended; its log is {server.process.log}")
    if not as_json:
        console.print("stopped")
