"""What the pipeline tells of itself: metrics, spans, logs, records, and what computing cost.

Belongs here: how it is told, and where to. Does not: what happened, which is the caller's, or reading the database.
"""
