"""Runs `kfm` as a process and reads what it says."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kfm_pipelines_tests.forks.process import Forked

RUN = ["-c", "from kfm_pipelines.cli import main; main()"]
COMMAND = [sys.executable, *RUN]


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
    """In a process of its own that need not wait for its imports."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(text.encode())
        given.seek(0)
        process = Forked([*RUN, *arguments], env=environment, stdin=given, stdout=out, stderr=err)
        try:
            code = process.wait(seconds)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return Said(code, out.read().decode(), err.read().decode())


def fresh_kfm(environment: Mapping[str, str], *arguments: str, seconds: float = 120) -> Said:
    """By a new interpreter, as a person starts it: slower by all the imports."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        text=True,
        capture_output=True,
        timeout=seconds,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)
