"""A policy's secret comes from the environment or from AWS Secrets Manager, is long enough, and is never displayed."""

import logging
import os
from collections.abc import Iterator
from uuid import uuid4

import pytest

from kfm_pipelines.aws.clients import secrets_client
from kfm_pipelines.care.secrets import key_check, keyed_digest, read_secret, secret_of
from kfm_pipelines.errors import KfmError, PolicyRefused, Retryable
from kfm_pipelines.local.stack import Stack
from kfm_pipelines.services import Services
from kfm_pipelines.settings import Settings, load_settings

SECRET = "correct horse battery staple, and then some"
VARIABLE = "KFM_CARE_KEY_HERITAGE_2026"
KEY_ID = "heritage-2026"


def settings(**environ: str) -> Settings:
    return load_settings({"KFM_POSTGRES_URL": "postgresql://kfm@localhost/kfm", **environ})


def kept_in_aws(key_id: str, **value: str | bytes) -> Settings:
    """A secret in the emulator's Secrets Manager, under a prefix of its own, and the settings that find it."""
    prefix = f"kfm/care/{uuid4().hex[:8]}/"
    if value:
        secrets_client().create_secret(Name=prefix + key_id, **value)  # type: ignore[arg-type]
    return settings(KFM_CARE_SECRETS=f"aws:{prefix}")


def refusal(given: Settings, key_id: str = KEY_ID) -> str:
    with pytest.raises(PolicyRefused) as refused:
        read_secret(given, key_id)
    message = str(refused.value)
    assert "\n" not in message
    # What is refused `from` something drags that along into a traceback.
    assert refused.value.__cause__ is None
    return message


@pytest.fixture
def away(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing listens at the address of AWS."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    secrets_client.cache_clear()
    yield
    secrets_client.cache_clear()


def test_a_secret_is_read_from_the_variable_of_its_key_id() -> None:
    assert read_secret(settings(**{VARIABLE: SECRET}), KEY_ID) == SECRET.encode()
    assert read_secret(settings(KFM_CARE_KEY_A_B_2=SECRET), "a-b-2") == SECRET.encode()


def test_a_secret_may_be_any_bytes() -> None:
    raw = b"\xff\xfe" * 16
    assert read_secret(settings(**{VARIABLE: os.fsdecode(raw)}), KEY_ID) == raw


@pytest.mark.parametrize("environ", [{}, {VARIABLE: ""}, {"KFM_CARE_KEY_OTHER": SECRET}])
def test_a_missing_secret_is_refused_with_the_variable_to_set(environ: dict[str, str]) -> None:
    message = refusal(settings(**environ))
    assert message == f"the secret of key {KEY_ID} is not there: set {VARIABLE}, or KFM_CARE_SECRETS to aws:…"


@pytest.mark.parametrize("text", ["hunter2", "a" * 31, " " * 64, "hunter2" + "\n" * 40, "é" * 15])
def test_a_short_secret_is_refused_without_quoting_it(text: str) -> None:
    message = refusal(settings(**{VARIABLE: text}))
    assert message == f"the secret of key {KEY_ID} is shorter than 32 bytes"


def test_length_is_counted_in_bytes() -> None:
    assert len(read_secret(settings(**{VARIABLE: "é" * 16}), KEY_ID)) == 32


def test_a_secret_is_read_from_secrets_manager(stack: Stack) -> None:
    given = kept_in_aws(KEY_ID, SecretString=SECRET)
    assert read_secret(given, KEY_ID) == SECRET.encode()


def test_the_environment_is_ignored_with_secrets_manager(stack: Stack) -> None:
    prefix = kept_in_aws(KEY_ID).care_secrets
    message = refusal(settings(KFM_CARE_SECRETS=prefix, **{VARIABLE: SECRET}))
    name = prefix.removeprefix("aws:") + KEY_ID
    assert message == (
        f"the secret of key {KEY_ID} cannot be read: reading {name} from Secrets Manager: ResourceNotFoundException"
    )


def test_a_short_secret_in_secrets_manager_is_refused(stack: Stack) -> None:
    message = refusal(kept_in_aws(KEY_ID, SecretString="hunter2"))
    assert message == f"the secret of key {KEY_ID} is shorter than 32 bytes"


def test_a_binary_secret_is_refused_with_what_to_do(stack: Stack) -> None:
    message = refusal(kept_in_aws(KEY_ID, SecretBinary=SECRET.encode()))
    assert "is binary: store it in kfm/care/" in message
    assert SECRET not in message


def test_a_secret_scheduled_for_deletion_is_missing(stack: Stack) -> None:
    given = kept_in_aws(KEY_ID, SecretString=SECRET)
    name = given.care_secrets.removeprefix("aws:") + KEY_ID
    secrets_client().delete_secret(SecretId=name, RecoveryWindowInDays=7)
    assert "InvalidRequestException" in refusal(given)


@pytest.mark.usefixtures("away")
def test_an_unreachable_secrets_manager_is_retryable() -> None:
    with pytest.raises(Retryable, match="from Secrets Manager: the service cannot be reached"):
        read_secret(settings(KFM_CARE_SECRETS="aws:kfm/care/"), KEY_ID)


def test_no_output_holds_the_secret(stack: Stack, caplog: pytest.LogCaptureFixture) -> None:
    """Not even the debug log of botocore."""
    secrets_client.cache_clear()
    given = kept_in_aws(KEY_ID, SecretString=SECRET)
    caplog.set_level(logging.DEBUG)
    for name in ("botocore", "botocore.parsers", "botocore.endpoint", "urllib3"):
        caplog.set_level(logging.DEBUG, logger=name)
    from_environment = settings(**{VARIABLE: SECRET})
    for one in (given, from_environment):
        services = Services(one)
        assert secret_of(services, KEY_ID) == SECRET.encode()
        text = repr(one) + repr(services) + str(vars(services).keys())
        assert SECRET not in text
    assert caplog.records, "botocore says something at this level, or this proves nothing"
    assert SECRET not in caplog.text


def test_a_secret_is_read_once_for_a_process(stack: Stack) -> None:
    """A run masks all its keys with one secret, whatever happens to it meanwhile."""
    given = kept_in_aws(KEY_ID, SecretString=SECRET)
    services = Services(given)
    first = secret_of(services, KEY_ID)
    name = given.care_secrets.removeprefix("aws:") + KEY_ID
    secrets_client().put_secret_value(SecretId=name, SecretString="another secret that is also long enough")
    assert secret_of(services, KEY_ID) == first
    assert secret_of(Services(given), KEY_ID) != first


def test_checks_and_keyed_digests_differ_by_secret() -> None:
    one, other = SECRET.encode(), SECRET.encode() + b"!"
    assert key_check(one) == key_check(one) != key_check(other)
    assert keyed_digest(one, "a") == keyed_digest(one, "a")
    assert len({keyed_digest(one, "a"), keyed_digest(one, "b"), keyed_digest(other, "a")}) == 3
    assert not keyed_digest(one, "kfm-key-check-1").startswith(key_check(one))


def test_a_configuration_error_is_a_kfm_error(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """When AWS is not configured at all."""
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    secrets_client.cache_clear()
    try:
        with pytest.raises(KfmError, match="cannot be read: the AWS settings do not work: You must specify a region"):
            read_secret(settings(KFM_CARE_SECRETS="aws:kfm/care/"), KEY_ID)
    finally:
        secrets_client.cache_clear()
