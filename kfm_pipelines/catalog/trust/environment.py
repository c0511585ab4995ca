"""The software this process runs, as documents tell of it. Found out once for a process."""

import hashlib
import platform
import shutil
import subprocess
import sys
from functools import cache
from importlib.metadata import distributions, packages_distributions, version
from urllib.parse import urlsplit

from kfm_pipelines.aws.clients import s3_client
from kfm_pipelines.catalog.facts import EnvironmentFacts, StorageFacts
from kfm_pipelines.catalog.trust.sbom import find_unlisted, list_installed, sbom_document
from kfm_pipelines.settings import PACKAGE


@cache
def environment_facts() -> EnvironmentFacts:
    commit, dirty = _checkout()
    return EnvironmentFacts(
        python=platform.python_version(),
        implementation=platform.python_implementation(),
        system=platform.system(),
        machine=platform.machine(),
        commit=commit,
        dirty=dirty,
        sbom=hashlib.sha256(sbom()).hexdigest(),
        kfm=version("kfm-pipelines"),
    )


@cache
def storage_facts(store_url: str) -> StorageFacts:
    """Where what is published lies, as everybody may know it."""
    parts = urlsplit(store_url)
    if parts.scheme != "s3":
        return StorageFacts()
    return StorageFacts(bucket=parts.netloc, region=s3_client().meta.region_name)


@cache
def sbom() -> bytes:
    """What is installed, as one document."""
    return sbom_document(list_installed(distributions()))


def unlisted_software() -> list[str]:
    """What this process has installed or imported, and its SBOM does not tell, one sentence each."""
    return find_unlisted(
        sbom(),
        distributions(),
        dict(sys.modules),
        _owners(),
        standard=_standard_modules(),
        own=PACKAGE.parent,
    )


@cache
def _owners() -> dict[str, list[str]]:
    """Distributions by top-level module, also of those that are one compiled file, which Python does not look for."""
    owners = {name: list(found) for name, found in packages_distributions().items()}
    for distribution in distributions():
        for file in distribution.files or ():
            if len(file.parts) == 1 and file.suffix in (".so", ".pyd"):
                owners.setdefault(file.name.partition(".")[0], []).append(distribution.name)
    return owners


def _standard_modules() -> frozenset[str]:
    """Of Python itself; one of them is named after the machine it was built for."""
    built = {name for name in sys.modules if name.startswith("_sysconfigdata_")}
    return frozenset({*sys.stdlib_module_names, "__main__", "__mp_main__", *built})


def _checkout() -> tuple[str | None, bool | None]:
    """The commit the code was checked out from, and whether it was changed since."""
    git = shutil.which("git")
    if git is None or not (PACKAGE.parent / ".git").exists():
        return None, None
    commit = _run_git(git, "rev-parse", "HEAD")
    changed = _run_git(git, "status", "--porcelain", "--untracked-files=no", "--", PACKAGE.name, "resources")
    return commit, None if changed is None else bool(changed)


def _run_git(git: str, *arguments: str) -> str | None:
    command = [git, "-C", str(PACKAGE.parent), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return done.stdout.strip() if done.returncode == 0 else None
