"""Signing keys: created once and readable only by their owner, or configured; and the seals they make."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from kfm_pipelines.care.signatures import create_private_key
from kfm_pipelines.catalog.trust.signer import FIELD, load_signer, open_sealed, read_public_keys, seal_document
from kfm_pipelines.errors import IntegrityBroken, SettingsInvalid, SignatureRefused
from kfm_pipelines.operations.doctor.diagnose import check_signing_key
from kfm_pipelines.operations.doctor.finding import DoctorFinding
from kfm_pipelines.services import Services
from kfm_pipelines.settings import Settings, load_reader_settings, load_settings
from kfm_pipelines_tests.fixtures.catalog.release import FORGER, KEYS, SIGNER

SEALED = seal_document("catalog/catalog.json", b'{"id": "x", "links": []}', SIGNER)


def settings(home: Path, **environ: str) -> Settings:
    return load_settings({"KFM_POSTGRES_URL": "postgresql://db/kfm", "KFM_HOME": str(home), **environ})


def test_processes_starting_at_once_share_one_key(tmp_path: Path) -> None:
    at_once = Barrier(8)

    def load(_: int) -> str:
        at_once.wait()
        return load_signer(settings(tmp_path)).public.key_id

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(load, range(8)))) == 1
    [path] = (tmp_path / "keys").iterdir()
    assert path == settings(tmp_path).signing_key
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_configured_key_is_used_and_never_created(tmp_path: Path) -> None:
    given = tmp_path / "given.pem"
    named = settings(tmp_path, KFM_SIGNING_KEY=str(given))
    with pytest.raises(SettingsInvalid, match=r"KFM_SIGNING_KEY: given\.pem cannot be read"):
        load_signer(named)
    create_private_key(given)
    assert load_signer(named).public.key_id == load_signer(named).public.key_id
    assert not (tmp_path / "keys").exists()
    assert load_reader_settings({"KFM_SIGNING_KEY": str(given)}).signing_key == given


def test_an_unusable_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    named = settings(tmp_path, KFM_SIGNING_KEY=str(path))
    curve = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for data, mode, message in (
        (b"nothing", 0o600, "holds no private key"),
        (curve, 0o600, "another kind of key than Ed25519"),
        (curve, 0o644, "can be read by others"),
    ):
        path.write_bytes(data)
        path.chmod(mode)
        with pytest.raises(SettingsInvalid, match=rf"^KFM_SIGNING_KEY: key\.pem .*{message}"):
            load_signer(named)


def test_the_doctor_checks_the_key_and_creates_none(tmp_path: Path) -> None:
    def found(**environ: str) -> DoctorFinding:
        [finding] = check_signing_key(Services(settings(tmp_path, **environ)))
        return finding

    assert found().ok
    assert "none yet" in found().found
    assert not (tmp_path / "keys").exists()
    on_s3 = found(KFM_STORE_URL="s3://bucket/prefix")
    assert not on_s3.ok
    assert "KFM_SIGNING_KEY" in on_s3.remedy
    create_private_key(tmp_path / "given.pem")
    given = found(KFM_STORE_URL="s3://bucket/prefix", KFM_SIGNING_KEY=str(tmp_path / "given.pem"))
    assert given.ok
    assert "given.pem, key " in given.found
    (tmp_path / "given.pem").chmod(0o644)
    with pytest.raises(SettingsInvalid, match="can be read by others"):
        found(KFM_SIGNING_KEY=str(tmp_path / "given.pem"))


def test_a_sealed_document_is_itself_and_its_seal() -> None:
    document, key = open_sealed("catalog/catalog.json", SEALED, KEYS)
    assert key == SIGNER.public
    assert {name: value for name, value in document.items() if name != FIELD} == {"id": "x", "links": []}
    assert seal_document("catalog/catalog.json", SEALED, SIGNER) == SEALED


@pytest.mark.parametrize(
    ("path", "data", "message"),
    [
        ("catalog/other.json", SEALED, "is not what was sealed"),
        ("catalog/catalog.json", SEALED.replace(b'"x"', b'"y"'), "is not what was sealed"),
        ("catalog/catalog.json", SEALED.replace(b"  ", b" "), "not written as it was sealed"),
        ("catalog/catalog.json", seal_document("catalog/catalog.json", SEALED, FORGER), "which is not known here"),
        ("catalog/catalog.json", b'{"id": "x"}', "not JSON with a seal"),
        ("catalog/catalog.json", b"[1]", "not JSON with a seal"),
    ],
)
def test_a_document_that_was_changed_or_moved_has_no_seal(path: str, data: bytes, message: str) -> None:
    with pytest.raises((IntegrityBroken, SignatureRefused), match=message):
        open_sealed(path, data, KEYS)


def test_public_keys_are_read_from_one_file_or_refused() -> None:
    pem = SIGNER.public.pem + FORGER.public.pem
    assert [key.key_id for key in read_public_keys(pem, "it")] == [SIGNER.public.key_id, FORGER.public.key_id]
    curve = generate_private_key(SECP256R1()).public_key()
    other = curve.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for data, message in (
        (b"", "holds no public key"),
        (other, "another kind of key than Ed25519"),
        (SIGNER.public.pem.replace(b"M", b"!"), "cannot be read"),
    ):
        with pytest.raises(SignatureRefused, match=message):
            read_public_keys(data, "it")
    assert "private" not in repr(SIGNER).lower()
