"""S3, SNS, SQS and Secrets Manager on one loopback port, by ministack; everything it knows is kept in {home}/aws.

ministack writes buckets' settings, topics, queues, messages and secrets down when it ends, objects at once.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kfm_pipelines.local.ports import LOOPBACK, answers
from kfm_pipelines.local.process import Command, GuardedProcess, start_on_free_port

_START_SECONDS = 60
_INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", "SYSTEMROOT")


@dataclass(frozen=True, slots=True)
class Aws:
    """A running emulator and how to reach it."""

    process: GuardedProcess
    url: str


def start_aws(home: Path) -> Aws:
    """Start the emulator with what it knew when it last ended, and wait until it is ready."""
    state = home / "aws"
    state.mkdir(mode=0o700, exist_ok=True)
    process, port = start_on_free_port(
        lambda port: GuardedProcess(home, "aws", _server_command(state, port)),
        partial(answers, path="/_ministack/ready"),
        _START_SECONDS,
    )
    return Aws(process, f"http://{LOOPBACK}:{port}")


def _server_command(state: Path, port: int) -> Command:
    # Its own command would listen on every interface.
    server = [sys.executable, "-m", "hypercorn", "ministack.app:app", "--bind", f"{LOOPBACK}:{port}", "--workers", "0"]
    return Command([*server, "--keep-alive", "75", "--log-level", "WARNING"], _environ(state))


def _environ(state: Path) -> Mapping[str, str]:
    """Only what it needs: half of ministack's switches have names that a shell may carry for other reasons.

    GATEWAY_PORT and MINISTACK_HOST stay unset on purpose: queues are filed under that port and would be lost after a
    restart on another one, and without a fixed host each answer names the address the caller used.
    """
    return {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ} | {
        "SERVICES": "s3,secretsmanager,sns,sqs",
        "PERSIST_STATE": "1",
        "STATE_DIR": str(state / "state"),
        "S3_PERSIST": "1",
        "S3_DATA_DIR": str(state / "objects"),
        "LOG_LEVEL": "WARNING",
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "DOCKER_HOST": "unix:///nonexistent",  # else it looks for, and stops, containers it takes for its own
    }
