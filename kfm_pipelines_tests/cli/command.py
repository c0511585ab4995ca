"""Runs `kfm` as a process and reads what it says."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

COMMAND = [sys.executable, "-c", "from kfm_pipelines.cli import main; main()"]


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


def kfm(environment: Mapping[str, str], *arguments: str, text: str = "", seconds: float = 120) -> Said:
    done = subprocess.run(
        [*COMMAND, *arguments],
        env=dict(environment),
        input=text,
        text=True,
        capture_output=True,
        timeout=seconds,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)
