"""Recomputes everything about a published tree from its bytes and public keys alone, without database or queues."""

from kfm_pipelines.catalog.trust.trust_root import PublicKeyOrigin, TrustRoot, load_trust_root
from kfm_pipelines.operations.verify.result import Check, VerificationResult
from kfm_pipelines.operations.verify.walk import verify_all, verify_key

__all__ = ["Check", "PublicKeyOrigin", "TrustRoot", "VerificationResult", "load_trust_root", "verify_all", "verify_key"]
