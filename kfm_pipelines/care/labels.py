"""Labels a policy may carry: the CARE principles, and the Traditional Knowledge and Biocultural labels by their ids.

The ids are those of Local Contexts, with the family in front. A label nobody knows is a mistake in the policy.
"""

from typing import Annotated

from pydantic import AfterValidator

_CARE = ("collective-benefit", "authority-to-control", "responsibility", "ethics")
_TRADITIONAL_KNOWLEDGE = (
    "attribution", "clan", "family", "multiple-communities", "community-voice", "creative", "verified",
    "non-verified", "seasonal", "women-general", "men-general", "men-restricted", "women-restricted",
    "culturally-sensitive", "secret-sacred", "open-to-commercialization", "non-commercial", "community-use-only",
    "outreach", "open-to-collaboration",
)  # fmt: skip
_BIOCULTURAL = (
    "provenance", "multiple-communities", "clan", "consent-verified", "consent-non-verified", "research-use",
    "open-to-collaboration", "open-to-commercialization", "outreach", "non-commercial",
)  # fmt: skip

LABELS = frozenset(
    f"{family}:{name}"
    for family, names in (("care", _CARE), ("tk", _TRADITIONAL_KNOWLEDGE), ("bc", _BIOCULTURAL))
    for name in names
)


def _known(label: str) -> str:
    if label not in LABELS:
        raise ValueError("is no known label; they look like care:ethics, tk:attribution or bc:provenance")
    return label


Label = Annotated[str, AfterValidator(_known)]
