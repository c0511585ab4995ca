"""What every test may ask for: one embedded stack for the whole session, exported as environment variables."""

from collections.abc import Iterator

import pytest

from kfm_pipelines.local.stack import Stack, open_stack
from kfm_pipelines.messaging.clients import s3_client, sns_client, sqs_client


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A real Postgres and a real emulator of our own, whatever the shell points to."""
    home = tmp_path_factory.mktemp("stack")
    with open_stack(home, environ={}) as opened, pytest.MonkeyPatch.context() as patch:
        for name, value in opened.environment.items():
            patch.setenv(name, value)
        patch.delenv("AWS_PROFILE", raising=False)
        for client in (s3_client, sns_client, sqs_client):
            client.cache_clear()
        yield opened
