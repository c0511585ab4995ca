"""The secrets of masking policies: from the environment or AWS Secrets Manager, by key id. Never shown, never kept."""

import hashlib
import hmac

from kfm_pipelines.aws.clients import secrets_client
from kfm_pipelines.aws.errors import translate_aws_errors
from kfm_pipelines.errors import KfmError, PolicyRefused, Retryable
from kfm_pipelines.services import Services
from kfm_pipelines.settings import Settings, care_variable

MIN_SECRET_BYTES = 32


def read_secret(settings: Settings, key_id: str) -> bytes:
    """PolicyRefused when there is none, or one that could be guessed."""
    text = (
        _from_aws(settings, key_id) if settings.care_secrets != "environment" else _from_environment(settings, key_id)
    )
    # A variable may hold bytes that are no text; an error about them would carry the secret.
    secret = text.encode(errors="surrogateescape")
    if len(secret.strip()) < MIN_SECRET_BYTES:
        raise PolicyRefused(
            f"the secret of key {key_id} is shorter than {MIN_SECRET_BYTES} bytes; nothing is masked with it"
        )
    return secret


def secret_of(services: Services, key_id: str) -> bytes:
    """Returns the secret with this id, read once: a run masks all its keys with the same one."""
    return services.load_once(("care secret", key_id), lambda: read_secret(services.settings, key_id))


def key_check(secret: bytes) -> str:
    """Tells whether a secret is the same one as before; nothing else can be learnt from it."""
    return hmac.digest(secret, b"kfm-key-check-1", "sha256").hex()[:16]


def keyed_digest(secret: bytes, value: str) -> str:
    """A digest of what must not be guessed from its plain one, the same as long as the secret is."""
    return hmac.new(secret, b"kfm-keyed-1\n" + value.encode(), hashlib.sha256).hexdigest()


def _from_environment(settings: Settings, key_id: str) -> str:
    variable = care_variable(key_id)
    secret = dict(settings.care_keys).get(variable)
    if secret is None:
        raise PolicyRefused(f"the secret of key {key_id} is not there: set {variable}, or KFM_CARE_SECRETS to aws:…")
    return secret


def _from_aws(settings: Settings, key_id: str) -> str:
    name = settings.care_secrets.removeprefix("aws:") + key_id
    try:
        with translate_aws_errors(f"reading {name} from Secrets Manager"):
            secret = secrets_client().get_secret_value(SecretId=name).get("SecretString")
    except Retryable:
        raise
    except KfmError as error:
        raise PolicyRefused(f"the secret of key {key_id} cannot be had: {error}") from None
    if secret is None:
        raise PolicyRefused(f"the secret of key {key_id} is not text: keep it in {name} as a secret string, not binary")
    return secret
