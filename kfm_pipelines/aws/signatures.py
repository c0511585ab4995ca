"""Signatures of SNS on its messages, by which a queue can tell that a provider's topic has sent one.

https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kfm_pipelines.errors import SenderUnproven, ServiceUnavailable
from kfm_pipelines.text import quote_value

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

# Names and values of these fields are signed, in this order; a notification may have no subject.
SIGNED_FIELDS = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
_CERTIFICATE_PATH = re.compile(r"/SimpleNotificationService-[0-9a-f]{32}\.pem")
MAX_CERTIFICATE_BYTES = 64 * 1024
TIMEOUT_SECONDS = 5.0

Download = Callable[[str], bytes]


class SignatureChecker:
    """Checks signatures with certificates that it keeps once they are downloaded."""

    def __init__(self, download: Download | None = None) -> None:
        self._download = download or download_certificate
        self._certificates: dict[str, Certificate] = {}

    def check(self, envelope: Mapping[str, Any], topic: str, now: datetime) -> None:
        """Raises SenderUnproven unless this topic has sent the notification, and ServiceUnavailable when that cannot
        be found out now."""
        if envelope.get("TopicArn") != topic:
            raise SenderUnproven(f"the message is from topic {quote_value(envelope.get('TopicArn'))}, not {topic}")
        url = str(envelope.get("SigningCertURL"))
        refuse_foreign_certificate(url, topic)
        certificate = self._certificate(url)
        if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
            raise SenderUnproven("the certificate that signed the message is not valid now")
        _verify(certificate, envelope)

    def has_certificate(self, envelope: Mapping[str, Any], topic: str) -> bool:
        """Whether the certificate of a message can be had now. A message that names no certificate of SNS needs none:
        it is refused."""
        try:
            url = str(envelope.get("SigningCertURL"))
            refuse_foreign_certificate(url, topic)
            self._certificate(url)
        except ServiceUnavailable:
            return False
        except SenderUnproven:
            return True
        return True

    def _certificate(self, url: str) -> "Certificate":
        from cryptography.x509 import load_pem_x509_certificate

        if url not in self._certificates:
            try:
                self._certificates[url] = load_pem_x509_certificate(self._download(url))
            except ValueError:
                raise SenderUnproven("the certificate that signed the message cannot be read") from None
        return self._certificates[url]


def refuse_foreign_certificate(url: str, topic: str) -> None:
    """Raises SenderUnproven unless SNS itself serves the certificate, in the region of the topic."""
    _, partition, _, region, *_ = topic.split(":")
    host = f"sns.{region}.amazonaws.com" + (".cn" if partition == "aws-cn" else "")
    try:
        parts = urlsplit(url)
        is_theirs = (parts.scheme, parts.netloc) == ("https", host) and not (parts.query or parts.fragment)
    except ValueError:
        is_theirs = False
    if not is_theirs or not _CERTIFICATE_PATH.fullmatch(parts.path):
        raise SenderUnproven(f"the certificate must come from {host}, not from {quote_value(url)}")


def download_certificate(url: str) -> bytes:
    """Follows no redirect, which could lead elsewhere."""
    import urllib3
    from urllib3.exceptions import HTTPError

    try:
        with urllib3.PoolManager(retries=False, timeout=TIMEOUT_SECONDS) as pool:
            answer = pool.request("GET", url, redirect=False, preload_content=False)
            data = answer.read(MAX_CERTIFICATE_BYTES)
    except HTTPError as error:
        raise ServiceUnavailable(f"the certificate of SNS could not be fetched: {type(error).__name__}") from None
    if answer.status >= 500:
        raise ServiceUnavailable(f"the certificate of SNS could not be fetched: status {answer.status}")
    if answer.status != 200:
        raise SenderUnproven(f"SNS has no such certificate: status {answer.status}")
    return data


def signed_text(envelope: Mapping[str, Any]) -> bytes:
    present = [name for name in SIGNED_FIELDS if envelope.get(name) is not None]
    return "".join(f"{name}\n{envelope[name]}\n" for name in present).encode()


def _verify(certificate: "Certificate", envelope: Mapping[str, Any]) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    algorithms = {"1": hashes.SHA1(), "2": hashes.SHA256()}  # noqa: S303 version 1 is what most topics still use
    algorithm, key = algorithms.get(str(envelope.get("SignatureVersion"))), certificate.public_key()
    if algorithm is None or not isinstance(key, RSAPublicKey):
        raise SenderUnproven("the message is not signed in a way that SNS signs")
    try:
        key.verify(
            b64decode(str(envelope.get("Signature")), validate=True), signed_text(envelope), PKCS1v15(), algorithm
        )
    except (InvalidSignature, Base64Error, ValueError):
        raise SenderUnproven("the signature of SNS on the message is wrong") from None
