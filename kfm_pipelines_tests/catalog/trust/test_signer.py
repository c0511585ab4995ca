"""The key that signs: made once for its owner alone, or given; what cannot sign is one sentence."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kfm_pipelines.care.signatures import create_private_key
from kfm_pipelines.catalog.trust.signer import load_signer
from kfm_pipelines.errors import SettingsInvalid
from kfm_pipelines.operations.doctor.environment import check_signing_key
from kfm_pipelines.operations.doctor.finding import DoctorFinding
from kfm_pipelines.services import Services
from kfm_pipelines.settings import Settings, load_reader_settings, load_settings


def settings(home: Path, **environ: str) -> Settings:
    return load_settings({"KFM_POSTGRES_URL": "postgresql://db/kfm", "KFM_HOME": str(home), **environ})


def test_many_at_once_get_the_same_key_of_this_home(tmp_path: Path) -> None:
    at_once = Barrier(8)

    def load(_: int) -> str:
        at_once.wait()
        return load_signer(settings(tmp_path)).public.key_id

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(load, range(8)))) == 1
    [path] = (tmp_path / "keys").iterdir()
    assert path == settings(tmp_path).signing_key
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_given_key_is_used_and_never_made(tmp_path: Path) -> None:
    given = tmp_path / "given.pem"
    named = settings(tmp_path, KFM_SIGNING_KEY=str(given))
    with pytest.raises(SettingsInvalid, match=r"KFM_SIGNING_KEY: given\.pem cannot be read"):
        load_signer(named)
    create_private_key(given)
    assert load_signer(named).public.key_id == load_signer(named).public.key_id
    assert not (tmp_path / "keys").exists()
    assert load_reader_settings({"KFM_SIGNING_KEY": str(given)}).signing_key == given


def test_what_cannot_sign_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    named = settings(tmp_path, KFM_SIGNING_KEY=str(path))
    curve = generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for data, mode, said in (
        (b"nothing", 0o600, "holds no private key"),
        (curve, 0o600, "another kind of key than Ed25519"),
        (curve, 0o644, "can be read by others"),
    ):
        path.write_bytes(data)
        path.chmod(mode)
        with pytest.raises(SettingsInvalid, match=rf"^KFM_SIGNING_KEY: key\.pem .*{said}"):
            load_signer(named)


def test_the_doctor_looks_at_the_key_and_makes_none(tmp_path: Path) -> None:
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
