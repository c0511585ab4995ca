"""Hands what a release has beside its table from stage to stage, in the work folder of the key."""

import json
from collections.abc import Callable
from dataclasses import asdict

from kfm_pipelines.data_files import Attachments, DataFile
from kfm_pipelines.declarations.identity import box_from
from kfm_pipelines.stores import WorkStore

INDEX = "attachments.json"

Locate = Callable[[str], str]  # from the name of a file to its path


def write_attachments(store: WorkStore, locate: Locate, attachments: Attachments) -> None:
    """Writes nothing for a release that is a table alone."""
    if not attachments:
        return
    for one in attachments.files:
        store.write(locate(one.file_name), one.data)
    described = [{name: value for name, value in asdict(one).items() if name != "data"} for one in attachments.files]
    index = {"files": described, "properties": attachments.properties, "remote": attachments.remote}
    store.write(locate(INDEX), json.dumps(index).encode())


def read_attachments(store: WorkStore, locate: Locate) -> Attachments:
    index = store.read_local(locate(INDEX))
    if index is None:
        return Attachments()
    document = json.loads(index)
    files = []
    for one in document["files"]:
        known = {**one, "roles": tuple(one["roles"]), "bbox": box_from(one["bbox"])}
        files.append(DataFile(**known, data=store.read_work(locate(f"{one['name']}{one['suffix']}"))))
    return Attachments(tuple(files), document["properties"], document["remote"])
