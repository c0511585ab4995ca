"""The commands of `kfm datasets` without a site: what they print, and how they end."""

import json
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kfm_pipelines_tests.fixtures.declarations import change, resources_in
from kfm_pipelines_tests.fixtures.sites.command import CommandResult, kfm_in_process
from kfm_pipelines_tests.fixtures.tables import rows


@pytest.fixture
def resources(tmp_path: Path) -> Path:
    return resources_in(tmp_path)


def datasets(resources: Path, *arguments: str) -> CommandResult:
    """Runs without a database or cloud services."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KFM_", "AWS_"))}
    own = {"KFM_RESOURCES": str(resources), "KFM_HOME": str(resources.parent / "home")}
    return kfm_in_process({**environment, **own}, "datasets", *arguments)


def test_a_check_without_a_site_lists_what_it_could_not_check(resources: Path) -> None:
    result = datasets(resources, "check", str(resources / "datasets/heritage-sites.yaml"))
    assert result.code == 0
    assert result.out == (
        "1 dataset valid: heritage/sites\n"
        "not checked: whether objects are announced and the running code has it: no stack is running (start `kfm up`)\n"
    )


def test_errors_are_lines_on_stderr_and_a_document_with_exit_1(resources: Path) -> None:
    path = resources / "datasets/heritage-sites.yaml"
    change(path, processor="tabel", policy="heritage-site")
    result = datasets(resources, "check", str(path))
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines()[-1] == "2 errors to correct"
    assert all(line.startswith("error: heritage-sites.yaml:") for line in result.err.splitlines()[:-1])

    result = datasets(resources, "check", str(path), "--json")
    document = json.loads(result.out)
    assert (result.code, document["ok"], document["datasets"]) == (1, False, [])
    assert {(one["file"], one["field"], one["severity"]) for one in document["problems"]} == {
        ("heritage-sites.yaml", "processor", "error"),
        ("heritage-sites.yaml", "policy", "error"),
    }
    assert all(isinstance(one["line"], int) for one in document["problems"])


def test_a_draft_elsewhere_is_to_be_moved(resources: Path, tmp_path: Path) -> None:
    draft = tmp_path / "draft.yaml"
    shutil.copyfile(resources / "datasets/heritage-sites.yaml", draft)
    [step] = datasets(resources, "check", str(draft), "--json").json["missing"]
    assert step["next"] == f"move it to {resources / 'datasets'}"


def test_from_a_file_to_a_trial(resources: Path, tmp_path: Path) -> None:
    path = tmp_path / "gauges_2025-12-04.parquet"
    pq.write_table(rows(3), path)
    written = datasets(resources, "new", "new/gauges", "--from", str(path))
    assert written.code == 0, written.err
    declaration = resources / "datasets/new-gauges.yaml"
    assert f"Next: edit both files, then: kfm datasets check {declaration}" in written.out

    again = datasets(resources, "new", "new/gauges", "--from", str(path))
    assert (again.code, again.err) == (1, f"kfm: {declaration} is there already; --force replaces it\n")

    checked = datasets(resources, "check", str(declaration), "--json").json
    assert [step["missing"] for step in checked["missing"]] == [
        "the policy new-gauges is undecided, so nothing would be published"
    ]
    closed = datasets(resources, "try", str(declaration), str(path), "--out", str(tmp_path / "closed"))
    assert closed.code == 1
    assert f"written    nothing to {tmp_path / 'closed'}, because nothing would be published" in closed.out
    assert "policy new-gauges@1 is undecided" in closed.out
    assert closed.out.endswith("would NOT be published\n")

    change(resources / "policies/new-gauges.yaml", sensitivity="open")
    out = tmp_path / "out"
    tried = datasets(resources, "try", str(declaration), str(path), "--out", str(out))
    assert tried.code == 0, tried.out
    assert tried.out.endswith("would be published\n")
    assert {one.name for one in out.iterdir()} == {"data.parquet", "item.json"}
    assert datasets(resources, "try", str(declaration), str(path), "--json").json["rows"] == 3


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("new", "Gauges", "--from", "x.csv"), 2, "'Gauges' is not a name; write DOMAIN/NAME"),
        (("new", "a/b", "--from", "nothing.csv"), 2, "there is no file 'nothing.csv'"),
        (("upload", __file__, "nowhere"), 2, "'nowhere' is not a place; write s3://BUCKET/KEY"),
    ],
)
def test_wrong_usage_is_one_sentence(resources: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    result = datasets(resources, *arguments)
    assert result.code == code
    assert message in result.err


def test_folders_of_scenes_are_refused_with_what_to_do_instead(resources: Path, tmp_path: Path) -> None:
    folder = tmp_path / "LC08_L2SP_017036_20130419_20200913_02_T2"
    folder.mkdir()
    (folder / "a_MTL.json").write_text(json.dumps({"LANDSAT_METADATA_FILE": {}}))
    copy = "copy resources/datasets/usgs-landsat-ndvi.yaml or esa-sentinel-2-scenes.yaml and edit it"
    for source in (str(folder), str(folder / "a_MTL.json"), "s3://usgs-landsat/collection02/"):
        result = datasets(resources, "new", "a/b", "--from", source)
        assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
        assert copy in result.err
    tried = datasets(resources, "try", str(resources / "datasets/usgs-landsat-ndvi.yaml"), str(folder))
    assert tried.code == 1
    assert "usgs/landsat-ndvi describes scenes" in tried.err
    assert "check and add it, then look at the first scene that is announced with kfm status" in tried.err
    table = datasets(resources, "try", str(resources / "datasets/usgs-streamflow.yaml"), str(folder))
    assert table.err == f"kfm: {folder} is a folder; name the files in it that are the objects of one key\n"


def test_a_file_that_cannot_be_read_leaves_nothing_behind(resources: Path, tmp_path: Path) -> None:
    path = tmp_path / "broken.parquet"
    path.write_bytes(b"PAR1 and nothing more")
    result = datasets(resources, "new", "a/b", "--from", str(path))
    assert (result.code, result.err) == (
        1,
        "kfm: broken.parquet is not a readable Parquet file: it is damaged or truncated\n",
    )
    assert not (resources / "datasets/a-b.yaml").exists()


def test_list_names_every_dataset(resources: Path) -> None:
    listed = datasets(resources, "list", "--json").json["datasets"]
    assert "heritage/sites" in [one["dataset"] for one in listed]
