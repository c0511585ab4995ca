"""The embedded stack: a real Postgres, an AWS emulator and Dagster as child processes on one machine."""
