"""CARE: who decides about a place, and what may be shown of it."""
