"""The folder and a public key are enough to verify what is published; one changed byte is found and named."""

import copy
import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.catalog.documents import checksum
from kfm_pipelines.catalog.trust.attestation import subjects_of
from kfm_pipelines.catalog.trust.signer import Signer, seal_document, signer_of, write_with_sidecar
from kfm_pipelines.cli.main import kfm
from kfm_pipelines.errors import ObjectMissing, SettingsInvalid, SignatureRefused
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.operations.verify import Check, PublicKeyOrigin, load_trust_root, verify_all, verify_key
from kfm_pipelines.operations.verify.published_tree import PublishedTree
from kfm_pipelines.operations.verify.records import read_statement
from kfm_pipelines.operations.verify.release import PublishedRelease, verify_release
from kfm_pipelines.producer.samples import streamflow_object, tribal_areas_object
from kfm_pipelines.stores.files import FileStore
from kfm_pipelines.stores.layout import public_key
from kfm_pipelines_tests.fixtures.care.register import KEY as HERITAGE
from kfm_pipelines_tests.fixtures.care.register import sites, with_reviewer
from kfm_pipelines_tests.fixtures.runs.batches import work_in_batches
from kfm_pipelines_tests.fixtures.sites.site import START, Site, opened_site

NOBODY = Path("/nonexistent/signing.pem")
COLLECTION = "catalog/usgs-streamflow/collection.json"
AGREE = "manifest, Item and attestation agree"


@pytest.fixture(scope="module")
def site(stack: Stack, site_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One published key of every dataset, one of them with two revisions. Tests must not change it."""
    root = tmp_path_factory.mktemp("verified") / "site"
    with opened_site(root, stack.environment["KFM_POSTGRES_URL"], site_template) as opened:
        register = with_reviewer(opened)
        opened.put()
        name, data = tribal_areas_object(START)
        s3_client().put_object(Bucket=opened.bucket, Key=name, Body=data)
        register.put(sites(register.dataset))
        work_in_batches(opened)
        register.approve()
        opened.put(data=_less_a_row())
        work_in_batches(opened)
        write_with_sidecar(opened.services, "catalog/usgs-streamflow/items.parquet", b"a snapshot")
        yield opened


def _less_a_row() -> bytes:
    _, data = streamflow_object(START)
    table, sink = pq.read_table(io.BytesIO(data)), io.BytesIO()
    pq.write_table(table.slice(1), sink)
    return sink.getvalue()


@pytest.fixture
def folder(site: Site, tmp_path: Path) -> Path:
    """A copy of the public files."""
    for tier in ("catalog", "objects", "processed", "reports/validation"):
        shutil.copytree(site.data / tier, tmp_path / "copy" / tier)
    return tmp_path / "copy"


def failures(folder: Path, given: Path | None = None) -> list[Check]:
    store = FileStore(folder)
    trust = load_trust_root(store, NOBODY, given)
    return [check for one in verify_all(store, trust) for check in one.failed]


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def keys(site: Site) -> list[str]:
    return [row["key"] for row in site.fetch("SELECT DISTINCT key FROM kfm.revisions ORDER BY key")]


def items(folder: Path) -> list[str]:
    return [path for path in files(folder) if "/items/" in path]


def test_everything_that_is_published_can_be_verified(site: Site, folder: Path) -> None:
    assert len(keys(site)) == len(items(folder)) == 3
    assert failures(folder) == []


def test_one_changed_byte_is_found_and_named(folder: Path) -> None:
    unnoticed = []
    for number, name in enumerate(files(folder)):
        path = folder / name
        path.chmod(0o644)
        good = path.read_bytes()
        position = number * 7919 % len(good)
        path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        if name not in {check.file for check in failures(folder)}:
            unnoticed.append((name, position))
        path.write_bytes(good)
    assert unnoticed == []
    assert failures(folder) == []


def test_a_missing_file_is_noticed(folder: Path) -> None:
    unnoticed = []
    for name in files(folder):
        if "usgs-streamflow" in name and not name.startswith("reports/"):  # reports expire
            (folder / name).rename(folder / "gone")
            if failures(folder) == []:
                unnoticed.append(name)
            (folder / "gone").rename(folder / name)
    assert unnoticed == []


@pytest.mark.parametrize(
    ("where", "what"),
    [
        ("catalog/usgs-streamflow/notes.json", "sealed"),
        ("catalog/notes.txt", "sealed"),
        ("processed/usgs-streamflow/another.parquet", "belongs to a key"),
        ("objects/sha256/aa/aaaa.json", "object is what its name says"),
        ("catalog/keys/another.pem", "public key"),
        ("reports/validation/usgs-streamflow/another/1.json", "sealed"),
    ],
)
def test_a_file_that_nothing_vouches_for_is_named(folder: Path, where: str, what: str) -> None:
    (folder / where).parent.mkdir(parents=True, exist_ok=True)
    (folder / where).write_text("{}")
    assert [(check.file, check.what) for check in failures(folder)] == [(where, what)]


def test_an_item_that_the_catalog_does_not_lead_to_is_named(site: Site, folder: Path) -> None:
    collection = json.loads((folder / COLLECTION).read_bytes())
    collection["links"] = [link for link in collection["links"] if link["rel"] not in ("item", "child")]
    document = seal_document(COLLECTION, json.dumps(collection).encode(), signer_of(site.services))
    (folder / COLLECTION).write_bytes(document)

    assert [(check.file, check.what) for check in failures(folder)] == [
        (f"catalog/usgs-streamflow/items/{site.key()}.json", "reached from the root")
    ]


def test_a_document_counts_only_in_its_own_place(folder: Path) -> None:
    shutil.copyfile(folder / "catalog/heritage-sites/collection.json", folder / COLLECTION)
    assert COLLECTION in {check.file for check in failures(folder) if check.what == "sealed"}


def test_signatures_of_other_keys_do_not_count(site: Site, folder: Path, tmp_path: Path) -> None:
    """A forger can put his own key into the store and sign a whole catalog with it."""
    forger = Signer(Ed25519PrivateKey.generate())
    (folder / public_key(forger.public.key_id)).write_bytes(forger.public.pem)
    (folder / COLLECTION).write_bytes(seal_document(COLLECTION, (folder / COLLECTION).read_bytes(), forger))
    assert failures(folder) == []  # without a given key, any key in the store counts

    given = tmp_path / "public.pem"
    given.write_bytes(signer_of(site.services).public.pem)
    assert {check.file for check in failures(folder, given)} == {COLLECTION}
    given.write_bytes(signer_of(site.services).public.pem + forger.public.pem)
    assert failures(folder, given) == []


def test_the_origin_of_the_key_is_reported(site: Site, folder: Path, tmp_path: Path) -> None:
    store, signer = FileStore(folder), signer_of(site.services)
    given = tmp_path / "public.pem"
    given.write_bytes(signer.public.pem)
    for signing_key, option, origin in (
        (NOBODY, None, PublicKeyOrigin.FOUND),
        (site.services.settings.signing_key, None, PublicKeyOrigin.OWN),
        (NOBODY, given, PublicKeyOrigin.GIVEN),
    ):
        trust = load_trust_root(store, signing_key, option)
        assert not trust.proves_origin
        assert verify_key(store, trust, site.key()).failed == ()
        assert {trust.origins[key_id] for key_id in trust.used} == {origin}
        assert trust.proves_origin == (origin is not PublicKeyOrigin.FOUND)


def test_digests_agree_in_all_documents_and_tables(site: Site) -> None:
    tree = PublishedTree(site.services.store, load_trust_root(site.services.store, NOBODY, None))
    for key in keys(site):
        layout_item = next(path for path in items(site.data) if path.endswith(f"/{key}.json"))
        release = PublishedRelease(tree, layout_item, is_historical=False)
        data, item = (
            release.tree.digest_and_size(release.asset("data"))[0],
            release.tree.digest_and_size(layout_item)[0],
        )
        provenance = release.tree.digest_and_size(release.asset("provenance"))[0]
        attestation, manifest = (
            release.tree.digest_and_size(release.attestation)[0],
            release.tree.digest_and_size(release.manifest_path)[0],
        )

        assert release.item["assets"]["data"]["file:checksum"] == checksum(data)
        assert release.item["assets"]["provenance"]["file:checksum"] == checksum(provenance)
        assert {name: one["sha256"] for name, one in release.manifest["outputs"].items()} == {
            "data.parquet": data,
            "item.json": item,
            "provenance.jsonld": provenance,
        }
        assert sorted(subjects_of(read_statement(tree, release.attestation)).values()) == sorted(
            [data, item, provenance, manifest]
        )
        [entry] = site.fetch(f"SELECT * FROM kfm.ledger WHERE key = '{key}' ORDER BY txn DESC LIMIT 1")
        assert (entry["content_hash"], entry["item_hash"]) == (data, item)
        assert (entry["manifest_hash"], entry["attestation_hash"]) == (manifest, attestation)
        assert (entry["rows"], entry["bytes"]) == tuple(
            release.manifest["outputs"]["data.parquet"][name] for name in ("rows", "size")
        )
        pipeline = release.layout.pipeline
        report = json.loads(site.services.store.read(f"reports/validation/{pipeline}/{key}/{entry['txn']}.json"))
        judged = {gate["gate"]: gate["digest"] for gate in report["gates"]}
        assert judged["schema"] == data
        [published] = site.fetch(
            f"SELECT detail FROM kfm.wal WHERE key = '{key}' AND step = 'publish' ORDER BY txn DESC LIMIT 1"
        )
        assert published["detail"]["records"] == {"run_manifest.json": manifest, "attestation.dsse.json": attestation}
        assert judged["care"] == judged["integrity"] == judged["governance"]


DISAGREEMENTS: dict[str, tuple[str, Callable[[dict[str, Any], dict[str, Any]], object]]] = {
    "rows": ("row count", lambda item, _: item["properties"].update({"table:row_count": 1})),
    "a column": ("columns", lambda item, _: item["properties"]["table:columns"].pop()),
    "a type": ("columns", lambda item, _: item["properties"]["table:columns"][0].update(type="date")),
    "the box": ("bounding box", lambda item, _: item.update(bbox=[0.0, 0.0, 1.0, 1.0])),
    "no box": ("bounding box", lambda item, _: item.pop("bbox")),
    "the key": (AGREE, lambda item, _: item["properties"].update({"kfm:key": "another"})),
    "the policy": (AGREE, lambda item, _: item["properties"].update({"kfm:policy": "another@1"})),
    "the size": (AGREE, lambda item, _: item["assets"]["data"].update({"file:size": 1})),
    "the config": (AGREE, lambda _, manifest: manifest.update(config={"sha256": "0" * 64})),
    "an input": (AGREE, lambda _, manifest: manifest["inputs"][0].update(digest={"sha256": "0" * 64})),
    "the commit": (AGREE, lambda _, manifest: manifest["source"].update(commit="0" * 40)),
    "the software": (AGREE, lambda _, manifest: manifest["environment"]["sbom"].update(sha256="0" * 64)),
    "an output": ("manifest names what is attested", lambda _, m: m["outputs"]["item.json"].update(sha256="0" * 64)),
    "a field": ("manifest keeps to its schema", lambda _, manifest: manifest.update(host="kfm-1")),
    "no warning": ("masking is recorded", lambda item, _: item["properties"].pop("anon:warning")),
    "unmasked": ("nothing is masked", lambda _, manifest: manifest["policy"].update(masked=False)),
}


@pytest.mark.parametrize(("what", "change"), DISAGREEMENTS.values(), ids=DISAGREEMENTS)
def test_documents_that_disagree_are_found(
    site: Site, what: str, change: Callable[[dict[str, Any], dict[str, Any]], object]
) -> None:
    tree = PublishedTree(site.services.store, load_trust_root(site.services.store, NOBODY, None))
    release = PublishedRelease(tree, f"catalog/heritage-sites/items/{HERITAGE}.json", is_historical=False)
    item, manifest = copy.deepcopy(release.item), copy.deepcopy(release.manifest)
    change(item, manifest)
    vars(release).update(item=item, manifest=manifest)
    assert what in {check.what for check in verify_release(release) if not check.ok}


def test_the_manifest_of_masked_data_hides_its_inputs(site: Site) -> None:
    tree = PublishedTree(site.services.store, load_trust_root(site.services.store, NOBODY, None))
    release = PublishedRelease(tree, f"catalog/heritage-sites/items/{HERITAGE}.json", is_historical=False)
    assert release.manifest["policy"]["masked"] is True
    for one in release.manifest["inputs"]:
        assert (one["etag"], one["size"], list(one["digest"])) == (None, None, ["hmacSha256"])


def run(*arguments: str, **environ: str) -> tuple[int, str]:
    unset = ("KFM_POSTGRES_URL", "KFM_STORE_URL", "KFM_SIGNING_KEY", "KFM_VERIFY_KEY")
    variables: dict[str, str | None] = {**dict.fromkeys(unset), "KFM_HOME": "/nonexistent"}
    result = CliRunner().invoke(kfm, ["verify", *arguments], env={**variables, **environ}, catch_exceptions=True)
    if isinstance(result.exception, Exception) and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_the_command_needs_only_the_folder(site: Site, folder: Path, tmp_path: Path) -> None:
    code, output = run(site.key(), "--store", str(folder))
    assert code == 0
    assert "attestation is signed" in output
    assert "not who made them" in output

    given = tmp_path / "public.pem"
    given.write_bytes(signer_of(site.services).public.pem)
    code, output = run("--all", "--store", folder.as_uri(), KFM_VERIFY_KEY=str(given))
    assert code == 0
    assert "3 keys" in output
    assert "not who made them" not in output

    (folder / f"processed/usgs-streamflow/{site.key()}.parquet").unlink()
    code, output = run(site.key(), "--json", KFM_STORE_URL=folder.as_uri())
    document = json.loads(output)
    assert code == 1
    assert not document["ok"]
    assert any(f"processed/usgs-streamflow/{site.key()}.parquet" in check["found"] for check in document["failed"])


def test_usage_errors_are_one_sentence(folder: Path, tmp_path: Path) -> None:
    assert run("--store", str(folder))[0] == 2
    with pytest.raises(ObjectMissing, match="nothing is published"):
        run("--all", "--store", str(tmp_path / "empty"))
    with pytest.raises(ObjectMissing, match="is not published in"):
        run("usgs-streamflow:kansas_statewide:none:1999-12-04T00Z:v1-0-0", "--store", str(folder))
    with pytest.raises(SettingsInvalid, match="cannot be read"):
        run("--all", "--store", str(folder), "--public-key", str(tmp_path / "none.pem"))
    private = tmp_path / "private.pem"
    private.write_bytes(Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(SignatureRefused, match="holds a private key"):
        run("--all", "--store", str(folder), "--public-key", str(private))
