"""Settings come from the environment once; what does not make sense is one sentence naming the variable."""

from pathlib import Path

import pytest

from kfm_pipelines.errors import SettingsInvalid
from kfm_pipelines.settings import load_settings, shipped_path, with_driver

NEEDED = {"KFM_POSTGRES_URL": "postgresql://kfm@localhost/kfm"}


def test_only_the_database_must_be_named() -> None:
    settings = load_settings(NEEDED)
    assert settings.postgres_url == "postgresql://kfm@localhost/kfm"
    assert settings.home == Path(".kfm").absolute()
    assert settings.store_url == f"{settings.home.as_uri()}/data"
    assert settings.resources == shipped_path("resources")
    assert (settings.topic, settings.queue, settings.dead_letter_queue) == (
        "kfm-ingest",
        "kfm-ingest",
        "kfm-ingest-dlq",
    )
    assert (settings.batch_size, settings.runs_in_flight) == (200, 4)
    assert (settings.lease_seconds, settings.max_attempts) == (30, 7)
    assert (settings.red_days, settings.findings_days) == (14, 400)
    assert settings.openlineage_url == f"{settings.home.as_uri()}/openlineage.jsonl"


def test_every_variable_is_read(tmp_path: Path) -> None:
    settings = load_settings(
        {
            "KFM_POSTGRES_URL": "postgres://db/kfm",
            "KFM_STORE_URL": "s3://kfm/lake/",
            "KFM_HOME": str(tmp_path / "home"),
            "KFM_RESOURCES": str(tmp_path / "resources"),
            "KFM_TOPIC": "t",
            "KFM_QUEUE": "q",
            "KFM_DEAD_LETTER_QUEUE": "d",
            "KFM_BATCH_SIZE": "5000",
            "KFM_RUNS_IN_FLIGHT": "1",
            "KFM_LEASE_SECONDS": "60",
            "KFM_MAX_ATTEMPTS": "3",
            "KFM_RETRY_BASE_SECONDS": "0.5",
            "KFM_FINDINGS_DAYS": "30",
            "KFM_OPENLINEAGE_URL": "https://lineage.example",
        }
    )
    assert settings.openlineage_url == "https://lineage.example"
    assert (settings.postgres_url, settings.store_url) == ("postgresql://db/kfm", "s3://kfm/lake")
    assert (settings.home, settings.resources) == (tmp_path / "home", tmp_path / "resources")
    assert (settings.topic, settings.queue, settings.dead_letter_queue) == ("t", "q", "d")
    assert (settings.batch_size, settings.runs_in_flight) == (5000, 1)
    assert (settings.lease_seconds, settings.max_attempts, settings.retry_base_seconds) == (60, 3, 0.5)
    assert settings.findings_days == 30


def test_an_empty_variable_counts_as_unset() -> None:
    names = ["KFM_STORE_URL", "KFM_HOME", "KFM_RESOURCES", "KFM_TOPIC", "KFM_BATCH_SIZE"]
    assert load_settings(NEEDED | dict.fromkeys(names, "")) == load_settings(NEEDED)


@pytest.mark.parametrize("url", [None, "", "mysql://db/kfm", "localhost:5432"])
def test_the_database_must_be_postgres(url: str | None) -> None:
    environ = {} if url is None else {"KFM_POSTGRES_URL": url}
    with pytest.raises(SettingsInvalid, match="KFM_POSTGRES_URL must be a postgresql:// address"):
        load_settings(environ)


@pytest.mark.parametrize("url", ["/data", "file://data", "https://bucket/x"])
def test_the_store_must_be_files_or_s3(url: str) -> None:
    with pytest.raises(SettingsInvalid, match="KFM_STORE_URL must start with file:/// or s3://"):
        load_settings(NEEDED | {"KFM_STORE_URL": url})


@pytest.mark.parametrize("name", ["KFM_BATCH_SIZE", "KFM_RUNS_IN_FLIGHT", "KFM_LEASE_SECONDS", "KFM_MAX_ATTEMPTS"])
@pytest.mark.parametrize("text", ["0", "-1", "1.5", "ten", "9999999", "1" * 5000, "٣", " 5"])
def test_numbers_must_be_whole_and_in_range(name: str, text: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"{name} must be a whole number from 1 to"):
        load_settings(NEEDED | {name: text})


@pytest.mark.parametrize("text", ["1", "29", "36501"])
def test_findings_cannot_be_forgotten_sooner_than_the_database_lets_them_go(text: str) -> None:
    with pytest.raises(SettingsInvalid, match="KFM_FINDINGS_DAYS must be a whole number from 30 to 36500"):
        load_settings(NEEDED | {"KFM_FINDINGS_DAYS": text})


@pytest.mark.parametrize("text", ["0", "0.0", "-1", "1e3", "nan", "inf", "3601", "1" * 5000, "٣", " 5", ".5"])
def test_seconds_must_be_a_plain_number_in_range(text: str) -> None:
    with pytest.raises(SettingsInvalid, match="KFM_RETRY_BASE_SECONDS must be seconds above 0 and up to 3600"):
        load_settings(NEEDED | {"KFM_RETRY_BASE_SECONDS": text})


def test_the_same_database_for_another_client() -> None:
    assert with_driver("postgresql://u:p@h/d", "psycopg2") == "postgresql+psycopg2://u:p@h/d"
    assert with_driver("postgresql+psycopg://u:p@h/d", "") == "postgresql://u:p@h/d"


def test_resources_are_found_from_a_checkout() -> None:
    assert (shipped_path("resources") / "datasets").is_dir()


def test_lineage_goes_to_a_file_or_over_http_or_nowhere() -> None:
    assert load_settings(NEEDED | {"KFM_OPENLINEAGE_URL": "none"}).openlineage_url is None
    for url in ("lineage.jsonl", "kafka://host", "file://relative"):
        with pytest.raises(SettingsInvalid, match="KFM_OPENLINEAGE_URL must be none, or start with"):
            load_settings(NEEDED | {"KFM_OPENLINEAGE_URL": url})


def test_each_signal_goes_to_its_opentelemetry_endpoint() -> None:
    of_all = load_settings({**NEEDED, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/"})
    assert of_all.span_collector == "http://collector:4318/v1/traces"
    assert of_all.metric_collector == "http://collector:4318/v1/metrics"
    own = load_settings({**NEEDED, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "https://metrics/otlp"})
    assert (own.span_collector, own.metric_collector) == (None, "https://metrics/otlp")
    assert load_settings(NEEDED).span_collector is None


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_a_collector_has_an_address(name: str) -> None:
    with pytest.raises(SettingsInvalid, match=name):
        load_settings({**NEEDED, name: "collector:4317"})


def test_the_metrics_port_may_be_unset() -> None:
    assert load_settings(NEEDED).metrics_port is None
    assert load_settings({**NEEDED, "KFM_METRICS_PORT": "9999"}).metrics_port == 9999
    with pytest.raises(SettingsInvalid, match="KFM_METRICS_PORT"):
        load_settings({**NEEDED, "KFM_METRICS_PORT": "70000"})
