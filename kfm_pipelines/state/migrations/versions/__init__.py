"""Schema of the `kfm` database schema, as Alembic revisions."""
