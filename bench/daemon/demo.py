"""`kfm demo` on a new stack: seconds from the first event sent to the last key published."""

import os
import subprocess
import sys
from pathlib import Path

from bench.measurement import Measurement
from bench.stack import own_stack

COMMAND = [sys.executable, "-c", "from kfm_pipelines.cli import main; main()", "demo", "--json"]
ALLOWED_SECONDS = 25.0
KEYS = 32  # one more waits for its review


def demo_from_first_event_to_last_key(folder: Path) -> Measurement:
    others = {name: value for name, value in os.environ.items() if not name.startswith(("KFM_", "AWS_", "DAGSTER_"))}
    home = {"KFM_HOME": str(folder / "home")}
    subprocess.run(COMMAND, check=True, stdout=subprocess.DEVNULL, env={**others, **home})
    with own_stack(folder) as services:
        [row] = services.database.fetch(
            """
            SELECT count(DISTINCT key) AS keys,
                   extract(epoch FROM max(applied_at) - (SELECT min(sent_at) FROM kfm.inbox))::float AS seconds
            FROM kfm.revisions
            """
        )
    if row["keys"] != KEYS:
        raise SystemExit(f"the demo published {row['keys']} of {KEYS} keys")
    return Measurement("demo_from_first_event_to_last_key", row["seconds"], "s", ALLOWED_SECONDS)
