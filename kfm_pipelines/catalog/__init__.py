"""Catalogs: documents that describe what is published, the same bytes for the same facts."""
