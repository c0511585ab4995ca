"""Typed settings, read from the environment once, at the edge. Those of AWS are left to boto3 and its variables."""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kfm_pipelines.errors import SettingsInvalid

CARE_KEY_PREFIX = "KFM_CARE_KEY_"
LOG_LEVELS = ("debug", "info", "warning", "error", "off")
TELEMETRY_FOLDER = "telemetry"
PACKAGE = Path(__file__).resolve().parent


def shipped_path(name: str) -> Path:
    """Returns a reviewed file or folder: from the wheel if installed, else from the checkout."""
    in_wheel = PACKAGE / "_shipped" / name
    return in_wheel if in_wheel.exists() else PACKAGE.parent / name


@dataclass(frozen=True, slots=True)
class Settings:
    """Addresses, names and limits. The comment of each field names its environment variable."""

    postgres_url: str = field(repr=False)  # KFM_POSTGRES_URL; contains a password
    store_url: str  # KFM_STORE_URL: file:///path or s3://bucket/prefix
    home: Path  # KFM_HOME: state of the embedded stack
    resources: Path  # KFM_RESOURCES
    topic: str  # KFM_TOPIC: where S3 announces objects
    notice_topic: str  # KFM_NOTICE_TOPIC: where producers send notices with routing attributes
    queue: str  # KFM_QUEUE
    priority_queue: str  # KFM_PRIORITY_QUEUE: notices of high priority, drained first
    dead_letter_queue: str  # KFM_DEAD_LETTER_QUEUE: of the two queues above
    fifo_queue: str  # KFM_FIFO_QUEUE; its topic has the same name
    fifo_dead_letter_queue: str  # KFM_FIFO_DEAD_LETTER_QUEUE
    batch_size: int  # KFM_BATCH_SIZE: keys in one run
    runs_in_flight: int  # KFM_RUNS_IN_FLIGHT: concurrent runs
    lease_seconds: int  # KFM_LEASE_SECONDS: how long a silent worker keeps its keys
    max_attempts: int  # KFM_MAX_ATTEMPTS
    retry_base_seconds: float  # KFM_RETRY_BASE_SECONDS: the first retry comes within twice this
    inbox_days: int  # KFM_INBOX_DAYS: how long superseded events are kept
    care_secrets: str  # KFM_CARE_SECRETS: `environment`, or `aws:` and the prefix of names in Secrets Manager
    care_keys: tuple[tuple[str, str], ...] = field(repr=False)  # KFM_CARE_KEY_…: secrets of masking policies
    signing_key: Path  # KFM_SIGNING_KEY: the private key that releases are signed with, PEM
    authorities: Path | None  # KFM_AUTHORITIES: a folder with more keys of the authorities
    footprints: Path | None  # KFM_FOOTPRINTS: a restricted folder with the places that rasters must not show
    red_days: int  # KFM_RED_DAYS: how long data that a gate refused is kept for inspection
    findings_days: int  # KFM_FINDINGS_DAYS: how long findings and validation reports are kept
    openlineage_url: str | None  # KFM_OPENLINEAGE_URL: file:///path or http(s)://host; `none` for no events
    payloads_kept: int  # KFM_PAYLOADS_KEPT: how many closed dead letters keep their message
    partitions_kept: int  # KFM_PARTITIONS_KEPT: how many keys of a dataset are partitions in Dagster
    run_days: int  # KFM_RUN_DAYS: how long ended runs stay in Dagster
    telemetry: bool  # KFM_TELEMETRY: `on`, or `off` for no metrics, spans and records
    log_level: str  # KFM_LOG_LEVEL: the lowest level of our own log lines; `off` for no log
    span_collector: str | None  # OTEL_EXPORTER_OTLP_ENDPOINT, …_TRACES_ENDPOINT: gets spans besides the file
    metric_collector: str | None  # OTEL_EXPORTER_OTLP_ENDPOINT, …_METRICS_ENDPOINT: gets metrics besides the file
    metrics_port: int | None  # KFM_METRICS_PORT: where Prometheus scrapes
    alert_topic: str  # KFM_ALERT_TOPIC: gets failed runs
    source_date_epoch: int | None = None  # SOURCE_DATE_EPOCH: the time in histories, for reproducible builds
    graph_url: str | None = None  # KFM_GRAPH_URL: bolt://host:port of the knowledge graph, if there is one
    graph_user: str = "neo4j"  # KFM_GRAPH_USER
    graph_password: str = field(default="", repr=False)  # KFM_GRAPH_PASSWORD

    @property
    def telemetry_folder(self) -> Path:
        return self.home / TELEMETRY_FOLDER

    @property
    def logs(self) -> "LogSettings":
        secrets = _secrets(self.postgres_url, self.care_keys, self.graph_password)
        return LogSettings(self.telemetry_folder, self.log_level, secrets)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What a process needs to write its log, even if it has no other settings."""

    folder: Path
    level: str
    secrets: tuple[str, ...] = field(repr=False)  # withheld from every line


def load_log_settings() -> LogSettings:
    env = os.environ
    graph_password = env.get("KFM_GRAPH_PASSWORD") or ""
    secrets = _secrets(env.get("KFM_POSTGRES_URL") or "", _care_keys(env), graph_password)
    level = _choice(env, "KFM_LOG_LEVEL", LOG_LEVELS, "info")
    return LogSettings(home_directory(env) / TELEMETRY_FOLDER, level, secrets)


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """Settings of commands that only read the store: no database, no queue."""

    store_url: str  # KFM_STORE_URL
    signing_key: Path  # KFM_SIGNING_KEY: trusted on the machine that signs
    verify_key: Path | None  # KFM_VERIFY_KEY: the public keys to trust, PEM


def load_reader_settings(environ: Mapping[str, str] | None = None) -> ReaderSettings:
    env = os.environ if environ is None else environ
    home = home_directory(env)
    return ReaderSettings(
        store_url=_store_url(env, home),
        signing_key=_signing_key(env, home),
        verify_key=_optional_path(env, "KFM_VERIFY_KEY"),
    )


def home_directory(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("KFM_HOME") or ".kfm").expanduser().absolute()


def resources_directory(env: Mapping[str, str] = os.environ) -> Path:
    """Returns KFM_RESOURCES, or the reviewed files that came with the code."""
    return _optional_path(env, "KFM_RESOURCES") or shipped_path("resources")


def load_settings(env: Mapping[str, str] = os.environ) -> Settings:
    """Reads the settings. Raises SettingsInvalid naming the variable and what it must be."""
    home = home_directory(env)
    return Settings(
        postgres_url=_postgres_url(env),
        store_url=_store_url(env, home),
        home=home,
        resources=resources_directory(env),
        topic=env.get("KFM_TOPIC") or "kfm-ingest",
        notice_topic=env.get("KFM_NOTICE_TOPIC") or "kfm-notices",
        queue=env.get("KFM_QUEUE") or "kfm-ingest",
        priority_queue=env.get("KFM_PRIORITY_QUEUE") or "kfm-ingest-high",
        dead_letter_queue=env.get("KFM_DEAD_LETTER_QUEUE") or "kfm-ingest-dlq",
        fifo_queue=_fifo_name(env, "KFM_FIFO_QUEUE", "kfm-ingest.fifo"),
        fifo_dead_letter_queue=_fifo_name(env, "KFM_FIFO_DEAD_LETTER_QUEUE", "kfm-ingest-dlq.fifo"),
        batch_size=_whole_number(env, "KFM_BATCH_SIZE", 200, at_most=5000),
        runs_in_flight=_whole_number(env, "KFM_RUNS_IN_FLIGHT", 4, at_most=200),
        lease_seconds=_whole_number(env, "KFM_LEASE_SECONDS", 30, at_most=86_400),
        max_attempts=_whole_number(env, "KFM_MAX_ATTEMPTS", 7, at_most=100),
        retry_base_seconds=_seconds(env, "KFM_RETRY_BASE_SECONDS", 2.0, at_most=3600.0),
        inbox_days=_whole_number(env, "KFM_INBOX_DAYS", 90, at_most=36_500),
        care_secrets=_care_secrets(env),
        care_keys=_care_keys(env),
        signing_key=_signing_key(env, home),
        authorities=_optional_path(env, "KFM_AUTHORITIES"),
        footprints=_optional_path(env, "KFM_FOOTPRINTS"),
        red_days=_whole_number(env, "KFM_RED_DAYS", 14, at_most=3650),
        findings_days=_whole_number(env, "KFM_FINDINGS_DAYS", 400, at_least=30, at_most=36_500),
        openlineage_url=_openlineage_url(env, home),
        payloads_kept=_whole_number(env, "KFM_PAYLOADS_KEPT", 10_000, at_most=10_000_000),
        partitions_kept=_whole_number(env, "KFM_PARTITIONS_KEPT", 50_000, at_most=100_000),
        run_days=_whole_number(env, "KFM_RUN_DAYS", 90, at_most=36_500),
        telemetry=_choice(env, "KFM_TELEMETRY", ("on", "off"), "on") == "on",
        log_level=_choice(env, "KFM_LOG_LEVEL", LOG_LEVELS, "info"),
        span_collector=_collector(env, "traces"),
        metric_collector=_collector(env, "metrics"),
        metrics_port=metrics_port(env),
        alert_topic=env.get("KFM_ALERT_TOPIC") or "kfm-alerts",
        graph_url=_graph_url(env),
        graph_user=env.get("KFM_GRAPH_USER") or "neo4j",
        graph_password=env.get("KFM_GRAPH_PASSWORD") or "",
        source_date_epoch=_optional_number(env, "SOURCE_DATE_EPOCH", at_least=0, at_most=253_402_300_799),
    )


def with_driver(postgres_url: str, driver: str) -> str:
    """Returns the URL for another client: `psycopg` for Alembic, `psycopg2` for Dagster, "" for libpq."""
    _, _, rest = postgres_url.partition("://")
    return f"postgresql+{driver}://{rest}" if driver else f"postgresql://{rest}"


def _postgres_url(env: Mapping[str, str]) -> str:
    url = env.get("KFM_POSTGRES_URL") or ""
    if not url.startswith(("postgresql://", "postgres://", "postgresql+")):
        raise SettingsInvalid(
            "KFM_POSTGRES_URL must be a postgresql:// address; set it, or start the embedded stack with `kfm up`"
        )
    return with_driver(url, "")


def _store_url(env: Mapping[str, str], home: Path) -> str:
    url = env.get("KFM_STORE_URL") or (home / "data").as_uri()
    if not url.startswith(("file:///", "s3://")):
        raise SettingsInvalid(f"KFM_STORE_URL must start with file:/// or s3://, not {url!r}")
    return url.rstrip("/")


def _optional_path(env: Mapping[str, str], name: str) -> Path | None:
    return Path(env[name]).absolute() if env.get(name) else None


def _signing_key(env: Mapping[str, str], home: Path) -> Path:
    given = env.get("KFM_SIGNING_KEY")
    return Path(given).expanduser().absolute() if given else default_signing_key(home)


def default_signing_key(home: Path) -> Path:
    return home / "keys" / "signing.pem"


def _openlineage_url(env: Mapping[str, str], home: Path) -> str | None:
    url = env.get("KFM_OPENLINEAGE_URL") or (home / "openlineage.jsonl").as_uri()
    if url != "none" and not url.startswith(("file:///", "http://", "https://")):
        raise SettingsInvalid(
            f"KFM_OPENLINEAGE_URL must be none, or start with file:///, http:// or https://, not {url!r}"
        )
    return None if url == "none" else url


def _choice(env: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    value = (env.get(name) or default).lower()
    if value not in allowed:
        raise SettingsInvalid(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
    return value


def _collector(env: Mapping[str, str], signal: str) -> str | None:
    """Returns the signal's own OpenTelemetry endpoint, or its path below the shared one."""
    own, shared = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
    name = own if env.get(own) else shared
    url = env.get(name)
    if url and not url.startswith(("http://", "https://")):
        raise SettingsInvalid(f"{name} must start with http:// or https://, not {url!r}")
    return f"{url.rstrip('/')}/v1/{signal}" if url and name == shared else url or None


def _graph_url(env: Mapping[str, str]) -> str | None:
    url = env.get("KFM_GRAPH_URL")
    if url and not re.match(r"(bolt|neo4j)(\+s|\+ssc)?://[^@/]+$", url):
        raise SettingsInvalid(
            "KFM_GRAPH_URL must be a bolt:// or neo4j:// address; a password belongs in KFM_GRAPH_PASSWORD"
        )
    return url or None


def has_graph(env: Mapping[str, str] = os.environ) -> bool:
    """Whether there is a knowledge graph."""
    return bool(env.get("KFM_GRAPH_URL"))


def metrics_port(env: Mapping[str, str] = os.environ) -> int | None:
    return _optional_number(env, "KFM_METRICS_PORT", at_least=1, at_most=65_535)


def _care_secrets(env: Mapping[str, str]) -> str:
    place = env.get("KFM_CARE_SECRETS") or "environment"
    if place != "environment" and not re.fullmatch(r"aws:[A-Za-z0-9/_+=.@-]*", place):
        raise SettingsInvalid("KFM_CARE_SECRETS must be environment, or aws: and the prefix of the secrets' names")
    return place


def care_variable(key_id: str) -> str:
    """Returns the variable with the secret of a key id: `heritage-2026` → KFM_CARE_KEY_HERITAGE_2026."""
    return CARE_KEY_PREFIX + key_id.upper().replace("-", "_")


def _care_keys(env: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, env[name]) for name in env if name.startswith(CARE_KEY_PREFIX) and env[name]))


def _secrets(postgres_url: str, care_keys: tuple[tuple[str, str], ...], graph_password: str) -> tuple[str, ...]:
    """Returns the passwords of the database and the graph, and the masking secrets."""
    password = ""
    with suppress(ValueError):
        password = urlsplit(postgres_url).password or ""
    passwords = (password, unquote(password), graph_password)
    return tuple(one for one in (*passwords, *(secret for _, secret in care_keys)) if one)


def _optional_number(env: Mapping[str, str], name: str, *, at_least: int, at_most: int) -> int | None:
    return _whole_number(env, name, 0, at_least=at_least, at_most=at_most) if env.get(name) else None


def _fifo_name(env: Mapping[str, str], name: str, default: str) -> str:
    queue = env.get(name) or default
    if not queue.endswith(".fifo"):
        raise SettingsInvalid(f"{name} must end in .fifo, not {queue!r}")
    return queue


def _whole_number(env: Mapping[str, str], name: str, default: int, *, at_least: int = 1, at_most: int) -> int:
    text = env.get(name) or str(default)
    if not text.isascii() or not text.isdigit() or not at_least <= int(text[:12]) <= at_most:
        raise SettingsInvalid(f"{name} must be a whole number from {at_least} to {at_most}, not {text!r}")
    return int(text)


def _seconds(env: Mapping[str, str], name: str, default: float, *, at_most: float) -> float:
    text = env.get(name) or str(default)
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text) or not 0 < float(text) <= at_most:
        raise SettingsInvalid(f"{name} must be seconds above 0 and up to {at_most:g}, not {text!r}")
    return float(text)
