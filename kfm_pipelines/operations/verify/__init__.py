"""Whether what is published is what was published: recomputed from the bytes in the store and public keys alone.

Belongs here: everything a stranger can check. Does not: anything that needs the database or the queues.
"""

from kfm_pipelines.catalog.trust.trust_root import PublicKeyOrigin, TrustRoot, load_trust_root
from kfm_pipelines.operations.verify.check import Check, VerificationResult
from kfm_pipelines.operations.verify.walk import verify_all, verify_key

__all__ = ["Check", "PublicKeyOrigin", "TrustRoot", "VerificationResult", "load_trust_root", "verify_all", "verify_key"]
