"""A signed statement proves who decided, and that it was not changed afterwards."""

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from kfm_pipelines.care.governance import Authority, load_authorities
from kfm_pipelines.care.signatures import create_private_key, public_key_of, read_private_key, sign
from kfm_pipelines.errors import DeclarationInvalid, SignatureRefused

TODAY = date(2026, 11, 16)
STATEMENT = {"statement": "review", "decision": "approved", "key": "a:b:c:d:e"}


def authority(path: Path, **changes: Any) -> Authority:
    key = {
        "holder": "A reviewer",
        "public_key": public_key_of(create_private_key(path)),
        "valid_from": TODAY,
        "valid_until": TODAY + timedelta(days=30),
    }
    return Authority.model_validate({"authority": "board", "name": "Board", "kind": "steward", "keys": [key | changes]})


def test_a_statement_has_its_signer(tmp_path: Path) -> None:
    board = authority(tmp_path / "key.pem")
    signed = sign(STATEMENT, read_private_key(tmp_path / "key.pem"))
    assert board.holder_of(signed, TODAY) == "A reviewer"


@pytest.mark.parametrize("change", [{"decision": "rejected"}, {"key": "a:b:c:d:f"}, {"more": "words"}])
def test_a_changed_statement_is_not_what_was_signed(tmp_path: Path, change: dict[str, str]) -> None:
    board = authority(tmp_path / "key.pem")
    signed = sign(STATEMENT, read_private_key(tmp_path / "key.pem"))
    with pytest.raises(SignatureRefused, match="does not match the statement"):
        board.holder_of(replace(signed, statement=STATEMENT | change), TODAY)


@pytest.mark.parametrize("signature", ["", "AAAA", "not base64 at all", "A" * 86 + "=="])
def test_an_invented_signature_is_refused(tmp_path: Path, signature: str) -> None:
    board = authority(tmp_path / "key.pem")
    signed = sign(STATEMENT, read_private_key(tmp_path / "key.pem"))
    with pytest.raises(SignatureRefused, match="does not match the statement"):
        board.holder_of(replace(signed, signature=signature), TODAY)


def test_a_key_of_somebody_else_is_refused(tmp_path: Path) -> None:
    board = authority(tmp_path / "key.pem")
    stranger = sign(STATEMENT, create_private_key(tmp_path / "other.pem"))
    with pytest.raises(SignatureRefused, match="does not belong to board"):
        board.holder_of(stranger, TODAY)


@pytest.mark.parametrize("day", [TODAY - timedelta(days=1), TODAY + timedelta(days=31)])
def test_a_key_is_valid_in_its_period_only(tmp_path: Path, day: date) -> None:
    board = authority(tmp_path / "key.pem")
    signed = sign(STATEMENT, read_private_key(tmp_path / "key.pem"))
    with pytest.raises(SignatureRefused, match=f"is not valid on {day}"):
        board.holder_of(signed, day)


def test_a_private_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "key.pem"
    create_private_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.chmod(0o640)
    with pytest.raises(SignatureRefused, match="can be read by others"):
        read_private_key(path)


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    create_private_key(tmp_path / "key.pem")
    before = (tmp_path / "key.pem").read_bytes()
    with pytest.raises(SignatureRefused, match="a key is never overwritten"):
        create_private_key(tmp_path / "key.pem")
    assert (tmp_path / "key.pem").read_bytes() == before


@pytest.mark.parametrize("text", ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "\x00"])
def test_a_file_without_a_key_is_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key.pem"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(SignatureRefused, match="holds no private key"):
        read_private_key(path)
    with pytest.raises(SignatureRefused, match="cannot be read: No such file"):
        read_private_key(tmp_path / "nowhere.pem")


def test_more_keys_are_added_to_known_authorities_only(tmp_path: Path) -> None:
    board = authority(tmp_path / "key.pem")
    reviewed, more = tmp_path / "resources", tmp_path / "more"
    for folder in (reviewed / "authorities", more):
        folder.mkdir(parents=True)
    document = board.model_dump()
    (reviewed / "authorities" / "board.yaml").write_text(yaml.safe_dump(document | {"keys": []}))
    (more / "board.yaml").write_text(yaml.safe_dump(document))
    assert load_authorities(reviewed)["board"].keys == []
    assert load_authorities(reviewed, more)["board"].keys == board.keys

    (more / "stranger.yaml").write_text(yaml.safe_dump(document | {"authority": "stranger"}))
    with pytest.raises(DeclarationInvalid, match="stranger: is not an authority in resources/authorities"):
        load_authorities(reviewed, more)


def test_an_invalid_public_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be an Ed25519 public key, 32 bytes in base64"):
        authority(tmp_path / "key.pem", public_key="AAAA")
