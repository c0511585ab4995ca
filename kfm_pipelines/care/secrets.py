"""The secrets of masking policies, from the environment or AWS Secrets Manager. Never displayed, never stored."""

import hashlib
import hmac

from kfm_pipelines.aws.clients import secrets_client
from kfm_pipelines.aws.errors import translate_aws_errors
from kfm_pipelines.errors import KfmError, PolicyRefused, Retryable
from kfm_pipelines.services import Services
from kfm_pipelines.settings import Settings, care_variable

MIN_SECRET_BYTES = 32


def read_secret(settings: Settings, key_id: str) -> bytes:
    """Raises PolicyRefused when the secret is missing or short enough to be guessed."""
    text = (
        _from_aws(settings, key_id) if settings.care_secrets != "environment" else _from_environment(settings, key_id)
    )
    # A variable may hold bytes that are not text; an encoding error would quote the secret.
    secret = text.encode(errors="surrogateescape")
    if len(secret.strip()) < MIN_SECRET_BYTES:
        raise PolicyRefused(f"the secret of key {key_id} is shorter than {MIN_SECRET_BYTES} bytes")
    return secret


def secret_of(services: Services, key_id: str) -> bytes:
    """Reads the secret once, so that a run masks all its keys with the same one."""
    return services.load_once(("care secret", key_id), lambda: read_secret(services.settings, key_id))


def key_check(secret: bytes) -> str:
    """Returns a value that changes with the secret and reveals nothing else."""
    return hmac.digest(secret, b"kfm-key-check-1", "sha256").hex()[:16]


def keyed_digest(secret: bytes, value: str) -> str:
    """Returns a digest that cannot be guessed without the secret."""
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
        raise PolicyRefused(f"the secret of key {key_id} cannot be read: {error}") from None
    if secret is None:
        raise PolicyRefused(f"the secret of key {key_id} is binary: store it in {name} as a secret string")
    return secret
