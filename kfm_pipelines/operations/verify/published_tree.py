"""The published files as a reader gets at them: by path, by relative link, each hashed once."""

import hashlib
import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from kfm_pipelines.catalog.trust.signer import open_sealed
from kfm_pipelines.catalog.trust.trust_root import TrustRoot
from kfm_pipelines.errors import IntegrityBroken, KfmError
from kfm_pipelines.operations.verify.check import Check
from kfm_pipelines.stores import Store

_ABSOLUTE_HREF = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|urn:|mailto:|/")
# Links to documents of the catalog; others lead to licences and to where inputs came from.
CATALOG_LINKS = ("root", "parent", "collection", "version-history")


class PublishedTree:
    """A store, the keys that count, and what is known of its files already."""

    def __init__(self, store: Store, trust: TrustRoot) -> None:
        self.store = store
        self.trust = trust
        self._digests: dict[str, tuple[str, int]] = {}
        self._seal_checks: dict[str, Check] = {}

    def read(self, path: str) -> bytes:
        try:
            data = self.store.read(path)
        except (OSError, ValueError) as error:
            raise IntegrityBroken(f"{path} cannot be read: {_describe_error(error)}") from None
        self._digests[path] = (hashlib.sha256(data).hexdigest(), len(data))
        return data

    def exists(self, path: str) -> bool:
        """Also of what can be nowhere: links are others' words."""
        try:
            return self.store.exists(path)
        except (OSError, ValueError):
            return False

    def digest_and_size(self, path: str) -> tuple[str, int]:
        """Digest and size."""
        if path not in self._digests:
            self.read(path)
        return self._digests[path]

    def paths_read(self) -> frozenset[str]:
        """What was read until now."""
        return frozenset(self._digests)

    def document(self, path: str) -> dict[str, Any]:
        try:
            document = json.loads(self.read(path))
        except (ValueError, RecursionError):
            raise IntegrityBroken(f"{path} is not JSON") from None
        if not isinstance(document, dict):
            raise IntegrityBroken(f"{path} is not a JSON object")
        return document

    def check_seal(self, path: str) -> Check:
        """Whether the document at this path is the one that was sealed."""
        if path not in self._seal_checks:
            try:
                _, key = open_sealed(path, self.read(path), self.trust.keys)
                self.trust.used.add(key.key_id)
                self._seal_checks[path] = Check("sealed", path, ok=True, found=f"key {key.key_id[:16]}")
            except KfmError as error:
                self._seal_checks[path] = Check("sealed", path, ok=False, found=str(error))
        return self._seal_checks[path]

    def resolve(self, base: str, href: str) -> str | None:
        """The path that a relative address leads to; None for one that leads out of the store."""
        if _ABSOLUTE_HREF.match(href):
            return None
        path = posixpath.normpath(posixpath.join(posixpath.dirname(base), href))
        if not self.exists(path):
            path = posixpath.normpath(unquote(path))  # a climb may be written in escapes
        if path.startswith(("..", "/")):
            raise IntegrityBroken(f"{base} links {href}, which is outside of the store")
        return path

    def links(self, base: str, document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Relation and path of every link into the store."""
        for link in document.get("links", []):
            path = self.resolve(base, link["href"])
            if path is not None:
                yield link["rel"], path


def check_links(tree: PublishedTree, base: str, document: Mapping[str, Any]) -> Iterator[Check]:
    missing = [path for _, path in tree.links(base, document) if not tree.exists(path)]
    yield Check("links lead somewhere", base, ok=not missing, found=f"nothing at {missing[0]}" if missing else "")


def _describe_error(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or "no such name can be"
