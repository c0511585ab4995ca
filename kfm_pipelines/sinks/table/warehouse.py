"""The Iceberg catalog in our Postgres, and where the tables are in the store."""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kfm_pipelines.declarations.dataset import Dataset
from kfm_pipelines.errors import ServiceUnavailable
from kfm_pipelines.services import Services
from kfm_pipelines.settings import with_driver
from kfm_pipelines.sinks.table.tables import metadata_location
from kfm_pipelines.stores import Store, read_if_exists
from kfm_pipelines.stores.layout import TABLES

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

CATALOG = "kfm"
IO = "kfm_pipelines.sinks.table.files.StoreFiles"
SCHEMA = "iceberg"  # of the catalog's tables in Postgres


def open_catalog(services: Services) -> "SqlCatalog":
    return services.load_once("iceberg catalog", lambda: _open_catalog(services))


def _open_catalog(services: Services) -> "SqlCatalog":
    from pyiceberg.catalog.sql import SqlCatalog

    from kfm_pipelines.sinks.table.files import ROOT, STORE_URL

    # A key's rows are replaced whether there are any or not.
    warnings.filterwarnings("ignore", "Delete operation did not match", UserWarning)
    root = warehouse_root(services)
    properties = {
        "uri": catalog_url(services.settings.postgres_url),
        "pool_pre_ping": "true",
        "init_catalog_tables": "false",
        "warehouse": f"{root}/{TABLES}",
        "py-io-impl": IO,
        STORE_URL: services.store.url,
        ROOT: root,
    }
    return SqlCatalog(CATALOG, **properties)


def catalog_url(postgres_url: str) -> str:
    """Returns the address of the catalog for SQLAlchemy."""
    separator = "&" if "?" in postgres_url else "?"
    return f"{with_driver(postgres_url, 'psycopg')}{separator}options=-csearch_path%3D{SCHEMA}"


def warehouse_root(services: Services) -> str:
    """Returns the store's address as readers of tables expect it: they do not decode the path of a file."""
    url = services.store.url
    return unquote(url) if url.startswith("file:") else url


def table_name(dataset: Dataset) -> tuple[str, str]:
    """Returns namespace and name: `drought/tribal-areas` → drought.tribal_areas."""
    namespace, _, name = dataset.dataset.replace("-", "_").partition("/")
    return namespace, name


def table_folder(pipeline: str) -> str:
    """Returns where the table's files are in the store."""
    return f"{TABLES}/{pipeline}"


def version_hint(pipeline: str) -> str:
    """Returns the path of the file that names the table's current metadata, for readers without the catalog."""
    return f"{table_folder(pipeline)}/metadata/version-hint.text"


def write_version_hint(services: Services, dataset: Dataset) -> None:
    location = metadata_location(services.database, CATALOG, *table_name(dataset))
    if location is not None:
        name = location.rsplit("/", 1)[-1].encode()
        if read_if_exists(services.store, version_hint(dataset.pipeline)) != name:
            services.store.write(version_hint(dataset.pipeline), name)


def open_published_table(store: Store, pipeline: str) -> "Table | None":
    """Opens a table from the files alone, also of a store that was copied elsewhere; None where there is none."""
    from pyiceberg.table import StaticTable

    from kfm_pipelines.sinks.table.files import ROOT, STORE_URL

    hint = read_if_exists(store, version_hint(pipeline))
    if hint is None:
        return None
    path = f"{table_folder(pipeline)}/metadata/{hint.decode()}"
    location: str = json.loads(store.read(path))["location"]
    root = location.removesuffix(f"/{table_folder(pipeline)}")
    properties = {"py-io-impl": IO, STORE_URL: store.url, ROOT: root}
    return StaticTable.from_metadata(f"{root}/{path}", properties)


def load_table(services: Services, dataset: Dataset) -> "Table | None":
    """Returns the dataset's table as it is now; None before its first publication."""
    from pyiceberg.exceptions import NoSuchTableError

    with translated_errors():
        try:
            return open_catalog(services).load_table(table_name(dataset))
        except NoSuchTableError:
            return None


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raises an unreachable database, and a table that others change all the time, as ours."""
    from pyiceberg.exceptions import CommitFailedException
    from sqlalchemy.exc import InterfaceError, OperationalError

    try:
        yield
    except CommitFailedException as error:
        raise ServiceUnavailable(f"the table was changed by another process: {error}") from error
    except (OperationalError, InterfaceError) as error:
        raise ServiceUnavailable(f"Postgres does not answer: {str(error.orig).splitlines()[0]}") from error
