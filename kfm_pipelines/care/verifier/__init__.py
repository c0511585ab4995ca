"""The CARE verifier: checks what is about to be published against the policy, rule by rule.

It shares no code with the masks and trusts nothing they report: it derives again, from the policy and the unmasked
table, what may be published, where each place lies and how many features each number stands for.
"""

from kfm_pipelines.care.verifier.evidence import Breach, Evidence, digest_of, release_digest, verify

__all__ = ["Breach", "Evidence", "digest_of", "release_digest", "verify"]
