"""Durable state in Postgres: inbox, keys and leases, write-ahead log, verdicts, revisions, dispatches, dead letters."""
