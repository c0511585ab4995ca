"""S3, SNS, SQS and Secrets Manager, emulated by ministack. Objects are saved at once, the rest when it ends."""

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from kfm_pipelines.local.process import LOOPBACK, Command, GuardedProcess, Server, answers, start_on_free_port

_START_SECONDS = 60
_INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", "SYSTEMROOT")


def start_aws(home: Path) -> Server:
    state = home / "aws"
    state.mkdir(mode=0o700, exist_ok=True)
    process, port = start_on_free_port(
        lambda port: GuardedProcess(home, "aws", _server_command(state, port)),
        partial(answers, path="/_ministack/ready"),
        _START_SECONDS,
    )
    return Server(process, f"http://{LOOPBACK}:{port}")


def _server_command(state: Path, port: int) -> Command:
    # ministack's own command would listen on every interface.
    server = [sys.executable, "-m", "hypercorn", "ministack.app:app", "--bind", f"{LOOPBACK}:{port}", "--workers", "0"]
    return Command([*server, "--keep-alive", "75", "--log-level", "WARNING"], _environ(state))


def _environ(state: Path) -> Mapping[str, str]:
    """Returns only what ministack needs: many of its switches have names that a shell may set for other reasons.

    GATEWAY_PORT stays unset because queues are stored under that port and would be lost after a restart on another
    one; MINISTACK_HOST, so that each response names the address the caller used.
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
        "DOCKER_HOST": "unix:///nonexistent",  # otherwise it stops containers it believes are its own
    }
