"""The package works installed as a wheel, reviewed files included, away from the checkout."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]
MIGRATIONS = CHECKOUT / "kfm_pipelines" / "state" / "migrations" / "versions"
ASK = """
import logging.config, yaml
import kfm_pipelines
from kfm_pipelines.definitions import build_definitions
from kfm_pipelines.settings import shipped_path
from kfm_pipelines.state.database import migrate
import kfm_pipelines.state.migrations.versions as versions, pathlib
print(kfm_pipelines.__file__)
print(shipped_path("dagster.yaml"), shipped_path("workspace.yaml"), shipped_path("resources"))
print(sorted(p.name for p in pathlib.Path(versions.__file__).parent.glob("0*.py")))
handlers = yaml.safe_load(shipped_path("dagster.yaml").read_text())["python_logs"]["dagster_handler_config"]["handlers"]
logging.config.dictConfig({"version": 1, "handlers": handlers})
print(sorted(key.to_user_string() for key in build_definitions(shipped_path("resources")).resolve_all_asset_keys()))
"""


@pytest.mark.slow
def test_an_installed_wheel_finds_everything_it_needs(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=CHECKOUT,
        check=True,
        capture_output=True,
    )
    [wheel] = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)

    environment = {**os.environ, "PYTHONPATH": str(site)}
    asked = subprocess.run(
        [sys.executable, "-c", ASK], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )

    package, files, versions, assets = asked.stdout.splitlines()
    assert package.startswith(str(site))
    assert all(file.startswith(str(site)) and Path(file).exists() for file in files.split())
    assert versions == str(sorted(path.name for path in MIGRATIONS.glob("0*.py")))
    assert "usgs/streamflow/publish" in assets
