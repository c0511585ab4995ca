"""Reads published files by path and by relative link, and hashes each once."""

import hashlib
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from kfm_pipelines.catalog.documents import read_item
from kfm_pipelines.catalog.trust.signer import open_sealed
from kfm_pipelines.catalog.trust.trust_root import TrustRoot
from kfm_pipelines.errors import IntegrityBroken, KfmError
from kfm_pipelines.operations.verify.result import Check
from kfm_pipelines.stores import Store

_ABSOLUTE_HREF = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|urn:|mailto:|/")
# Links to catalog documents; others lead to licences and input sources.
CATALOG_LINKS = ("root", "parent", "collection", "version-history")


class PublishedTree:
    """A store with its trusted keys, and a cache of digests and seals."""

    def __init__(self, store: Store, trust: TrustRoot) -> None:
        self.store = store
        self.trust = trust
        self._digests: dict[str, tuple[str, int]] = {}
        self._seal_checks: dict[str, Check] = {}

    def read(self, path: str) -> bytes:
        try:
            data = self.store.read(path)
        except (OSError, ValueError) as error:
            why = (isinstance(error, OSError) and error.strerror) or "impossible name"
            raise IntegrityBroken(f"{path} cannot be read: {why}") from None
        self._digests[path] = (hashlib.sha256(data).hexdigest(), len(data))
        return data

    def exists(self, path: str) -> bool:
        """Returns False for impossible paths too: links are untrusted input."""
        try:
            return self.store.exists(path)
        except (OSError, ValueError):
            return False

    def digest_and_size(self, path: str) -> tuple[str, int]:
        if path not in self._digests:
            self.read(path)
        return self._digests[path]

    def paths_read(self) -> frozenset[str]:
        return frozenset(self._digests)

    def document(self, path: str) -> dict[str, Any]:
        document = dict(read_item(self.read(path)))
        if not document:
            raise IntegrityBroken(f"{path} is not a JSON object with fields")
        return document

    def check_seal(self, path: str) -> Check:
        if path not in self._seal_checks:
            try:
                _, key = open_sealed(path, self.read(path), self.trust.keys)
                self.trust.used.add(key.key_id)
                self._seal_checks[path] = Check("sealed", path, ok=True, found=f"key {key.key_id[:16]}")
            except KfmError as error:
                self._seal_checks[path] = Check("sealed", path, ok=False, found=str(error))
        return self._seal_checks[path]

    def resolve(self, base: str, href: str) -> str | None:
        """Returns the path a relative link leads to, or None for an absolute one."""
        if _ABSOLUTE_HREF.match(href):
            return None
        path = posixpath.normpath(posixpath.join(posixpath.dirname(base), href))
        if not self.exists(path):
            path = posixpath.normpath(unquote(path))  # ".." may be escaped
        if path.startswith(("..", "/")):
            raise IntegrityBroken(f"{base} links {href}, which is outside the store")
        return path

    def links(self, base: str, document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Yields relation and path of every link into the store."""
        for link in document.get("links", []):
            path = self.resolve(base, link["href"])
            if path is not None:
                yield link["rel"], path


def check_links(tree: PublishedTree, base: str, document: Mapping[str, Any]) -> Iterator[Check]:
    missing = [path for _, path in tree.links(base, document) if not tree.exists(path)]
    yield Check("links lead somewhere", base, ok=not missing, found=f"nothing at {missing[0]}" if missing else "")
