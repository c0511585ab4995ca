"""Features: their reference system, faults, validity, area and order."""
