"""Removes coordinates, passwords, keys and signatures from log text; keys, ids, names, times and digests stay."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from kfm_pipelines.text import WITHHELD, make_printable, redact_coordinates

MAX_TEXT_LENGTH = 2000
# Longer text is truncated before scanning, and loses its tail too, where a secret cut in two would go unnoticed.
MAX_SCANNED_LENGTH = 16_000
_UNCERTAIN_TAIL = 4000
# Shorter secrets would match parts of ordinary words.
_MIN_SECRET_LENGTH = 10

_RULES = (
    # Private keys, complete or truncated.
    (re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.S), WITHHELD),
    # Headers, as sent or as Python prints them.
    (re.compile(r"(?i)(authorization[\"']?\s*[:=]\s*(?:b(?=[\"']))?[\"']?)[^\r\n\"']+"), rf"\1{WITHHELD}"),
    (re.compile(r"(?i)\bbearer\s+[A-Za-z0-9._~+/=-]{16,}"), f"Bearer {WITHHELD}"),
    # Passwords in URLs; those of Postgres may contain anything. Bounded lengths keep matching fast.
    (re.compile(r"(?i)\b(postgres(?:ql)?(?:\+\w+)?://[^\s:@/]{0,100}):\S{0,500}@"), rf"\1:{WITHHELD}@"),
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,20}://[^\s:@/?#]{0,100}):[^\s@/]{1,500}@"), rf"\1:{WITHHELD}@"),
    # Presigned URLs.
    (
        re.compile(
            r"(?i)\b(X-Amz-(?:Signature|Credential|Security-Token)|Signature|AWSAccessKeyId)(=|%3D)[^&\s\"'<>]+"
        ),
        rf"\1\2{WITHHELD}",
    ),
    # Named secrets: password=…, "aws_secret_access_key": "…".
    (
        re.compile(
            r"(?i)((?:password|passwd|pwd|secret(?:_?access)?_?key|session_?token|api_?key|KFM_CARE_KEY_\w{1,60})"
            r"[\"']?\s*[:=]\s*(?:b(?=[\"']))?)(?:\"[^\"]*\"?|'[^']*'?|[^\s\"',;&]+)"
        ),
        rf"\1{WITHHELD}",
    ),
    # AWS access key ids, session tokens and secrets: forty characters with upper case, lower case and digits.
    (re.compile(r"(?<![A-Za-z0-9])A(?:KIA|SIA|ROA|IDA)[A-Z0-9]{12,}(?![A-Za-z0-9])"), WITHHELD),
    (re.compile(r"(?<![A-Za-z0-9/+])(?:FwoG|FQoG|IQoJ)[A-Za-z0-9/+=]{50,}"), WITHHELD),
    (
        re.compile(
            r"(?<![A-Za-z0-9/+=])(?=[^\s]{0,39}[A-Z])(?=[^\s]{0,39}[a-z])(?=[^\s]{0,39}\d)"
            r"[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])"
        ),
        WITHHELD,
    ),
)
MAX_CACHED_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Redactor:
    """Withholds what the rules match, and the secrets of this installation."""

    secrets: tuple[str, ...] = ()

    @classmethod
    def from_secrets(cls, secrets: Iterable[str]) -> "Redactor":
        """Orders secrets longest first, because one may be a prefix of another."""
        return cls(tuple(sorted({one for one in secrets if len(one) >= _MIN_SECRET_LENGTH}, key=len, reverse=True)))

    def redact(self, text: str) -> str:
        """Returns the text on one line, without secrets, and truncated if it is long."""
        # Ids, keys and names repeat: scanning them took half of the time of a line.
        return _redact_cached(self, text) if len(text) <= MAX_CACHED_LENGTH else self._redact(text)

    def _redact(self, text: str) -> str:
        if len(text) <= MAX_SCANNED_LENGTH:
            clean = make_printable(self._without_secrets(text))
            return clean if len(clean) <= MAX_TEXT_LENGTH else _truncate(clean, len(text))
        return _truncate(make_printable(self._without_secrets(text[:MAX_SCANNED_LENGTH])[:-_UNCERTAIN_TAIL]), len(text))

    def _without_secrets(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, WITHHELD)
        for pattern, instead in _RULES:
            text = pattern.sub(instead, text)
        return redact_coordinates(text)


@lru_cache(maxsize=4096)
def _redact_cached(redactor: Redactor, text: str) -> str:
    return redactor._redact(text)


def _truncate(text: str, length: int) -> str:
    return f"{text[:MAX_TEXT_LENGTH]}… (cut, {length} characters)"
