"""The topic where people and their tools are told of what failed. Who listens there is up to whoever runs the site."""

import json
from collections.abc import Mapping

from kfm_pipelines.messaging.aws_errors import translated
from kfm_pipelines.messaging.batches import text_attributes
from kfm_pipelines.messaging.clients import sns_client
from kfm_pipelines.messaging.producer import Topic

LONGEST_SUBJECT = 100  # SNS refuses more, and everything but printable ASCII


class AlertTopic(Topic):
    def tell(self, subject: str, document: Mapping[str, object], attributes: Mapping[str, str]) -> None:
        """`subject` is what a mail has on top; subscriptions filter by `attributes`."""
        plain = "".join(character if " " <= character <= "~" else "?" for character in subject)
        with translated(f"publishing to topic {self.name}"):
            sns_client().publish(
                TopicArn=self._arn,
                Subject=plain[:LONGEST_SUBJECT],
                Message=json.dumps(document),
                MessageAttributes=text_attributes(attributes),
            )
