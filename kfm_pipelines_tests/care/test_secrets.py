"""A policy's secret comes from the environment or from AWS Secrets Manager, is long enough, and is never shown."""

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
    said = str(refused.value)
    assert "\n" not in said
    # What is refused `from` something drags that along into a traceback.
    assert refused.value.__cause__ is None
    return said


@pytest.fixture
def away(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody listens where AWS should be."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    secrets_client.cache_clear()
    yield
    secrets_client.cache_clear()


def test_the_environment_holds_it_under_the_name_of_its_key_id() -> None:
    assert read_secret(settings(**{VARIABLE: SECRET}), KEY_ID) == SECRET.encode()
    assert read_secret(settings(KFM_CARE_KEY_A_B_2=SECRET), "a-b-2") == SECRET.encode()


def test_bytes_that_are_no_text_are_a_secret_like_any_other() -> None:
    raw = b"\xff\xfe" * 16
    assert read_secret(settings(**{VARIABLE: os.fsdecode(raw)}), KEY_ID) == raw


@pytest.mark.parametrize("environ", [{}, {VARIABLE: ""}, {"KFM_CARE_KEY_OTHER": SECRET}])
def test_without_one_the_sentence_says_which_variable_to_set(environ: dict[str, str]) -> None:
    said = refusal(settings(**environ))
    assert said == f"the secret of key {KEY_ID} is not there: set {VARIABLE}, or KFM_CARE_SECRETS to aws:…"


@pytest.mark.parametrize("text", ["hunter2", "a" * 31, " " * 64, "hunter2" + "\n" * 40, "é" * 15])
def test_one_that_could_be_guessed_is_refused_without_being_told(text: str) -> None:
    said = refusal(settings(**{VARIABLE: text}))
    assert said == f"the secret of key {KEY_ID} is shorter than 32 bytes; nothing is masked with it"


def test_length_is_counted_in_bytes() -> None:
    assert len(read_secret(settings(**{VARIABLE: "é" * 16}), KEY_ID)) == 32


def test_secrets_manager_holds_it_under_the_given_beginning_of_names(stack: Stack) -> None:
    given = kept_in_aws(KEY_ID, SecretString=SECRET)
    assert read_secret(given, KEY_ID) == SECRET.encode()


def test_the_environment_is_not_asked_when_secrets_manager_is(stack: Stack) -> None:
    prefix = kept_in_aws(KEY_ID).care_secrets
    said = refusal(settings(KFM_CARE_SECRETS=prefix, **{VARIABLE: SECRET}))
    name = prefix.removeprefix("aws:") + KEY_ID
    assert said == (
        f"the secret of key {KEY_ID} cannot be had: reading {name} from Secrets Manager: ResourceNotFoundException"
    )


def test_a_secret_that_is_too_short_for_us_is_refused_from_there_too(stack: Stack) -> None:
    said = refusal(kept_in_aws(KEY_ID, SecretString="hunter2"))
    assert said == f"the secret of key {KEY_ID} is shorter than 32 bytes; nothing is masked with it"


def test_a_binary_secret_is_refused_with_what_to_do(stack: Stack) -> None:
    said = refusal(kept_in_aws(KEY_ID, SecretBinary=SECRET.encode()))
    assert "is not text: keep it in kfm/care/" in said
    assert SECRET not in said


def test_a_secret_about_to_be_deleted_is_none(stack: Stack) -> None:
    given = kept_in_aws(KEY_ID, SecretString=SECRET)
    name = given.care_secrets.removeprefix("aws:") + KEY_ID
    secrets_client().delete_secret(SecretId=name, RecoveryWindowInDays=7)
    assert "InvalidRequestException" in refusal(given)


@pytest.mark.usefixtures("away")
def test_when_secrets_manager_is_away_the_work_may_be_tried_again() -> None:
    with pytest.raises(Retryable, match="from Secrets Manager: the service cannot be reached"):
        read_secret(settings(KFM_CARE_SECRETS="aws:kfm/care/"), KEY_ID)


def test_nothing_we_show_holds_the_secret(stack: Stack, caplog: pytest.LogCaptureFixture) -> None:
    """Not even to who looks at everything botocore has to say."""
    secrets_client.cache_clear()
    given = kept_in_aws(KEY_ID, SecretString=SECRET)
    caplog.set_level(logging.DEBUG)
    for name in ("botocore", "botocore.parsers", "botocore.endpoint", "urllib3"):
        caplog.set_level(logging.DEBUG, logger=name)
    from_environment = settings(**{VARIABLE: SECRET})
    for one in (given, from_environment):
        services = Services(one)
        assert secret_of(services, KEY_ID) == SECRET.encode()
        shown = repr(one) + repr(services) + str(vars(services).keys())
        assert SECRET not in shown
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


def test_its_check_and_what_is_keyed_with_it_tell_secrets_apart_and_nothing_else() -> None:
    one, other = SECRET.encode(), SECRET.encode() + b"!"
    assert key_check(one) == key_check(one) != key_check(other)
    assert keyed_digest(one, "a") == keyed_digest(one, "a")
    assert len({keyed_digest(one, "a"), keyed_digest(one, "b"), keyed_digest(other, "a")}) == 3
    assert not keyed_digest(one, "kfm-key-check-1").startswith(key_check(one))


def test_an_error_is_one_of_ours(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when AWS is not set up at all."""
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    secrets_client.cache_clear()
    try:
        with pytest.raises(KfmError, match="cannot be had: the AWS settings do not work: You must specify a region"):
            read_secret(settings(KFM_CARE_SECRETS="aws:kfm/care/"), KEY_ID)
    finally:
        secrets_client.cache_clear()
