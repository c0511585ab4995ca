"""The CARE verifier: reads what is about to be published and holds it against the policy, rule by rule.

It trusts nothing that the masks say of themselves and shares no code with them: what may be shown, where a place lies
and how many features stand behind a number is worked out here again, from the policy and the unmasked table.
"""

from kfm_pipelines.care.verifier.evidence import Breach, Evidence, digest_of, release_digest
from kfm_pipelines.care.verifier.verify import verify

__all__ = ["Breach", "Evidence", "digest_of", "release_digest", "verify"]
