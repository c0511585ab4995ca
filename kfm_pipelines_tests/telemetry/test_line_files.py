"""Lines of several processes stay whole, and a full file is kept next to the new one."""

import json
import subprocess
import sys
from pathlib import Path

from kfm_pipelines.telemetry.line_files import MAX_BYTES, AppendOnlyFile, previous_path

WRITE = """
import sys
from pathlib import Path
from kfm_pipelines.telemetry.line_files import AppendOnlyFile
file = AppendOnlyFile(Path(sys.argv[1]), max_bytes=200_000)
for _ in range(500):
    file.write(sys.argv[2] * 1000 + "\\n")
"""


def test_lines_of_many_processes_are_whole(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, str(file), name]) for name in "abcd"]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0, 0]
    assert all(line in {name * 1000 for name in "abcd"} for line in file.read_text().splitlines())
    assert file.stat().st_size <= 210_000


def test_a_full_file_is_kept_next_to_the_new_one(tmp_path: Path) -> None:
    file = AppendOnlyFile(tmp_path / "a.jsonl", max_bytes=100)
    other = AppendOnlyFile(tmp_path / "a.jsonl", max_bytes=100)
    for number in range(24):
        (file if number % 2 else other).write(json.dumps({"n": number, "text": "x" * 30}) + "\n")
    kept = [json.loads(line)["n"] for path in (previous_path(file.path), file.path) for line in path.open()]
    assert kept == list(range(24 - len(kept), 24))
    assert len(kept) >= 3
    assert MAX_BYTES == 64 * 1024 * 1024
