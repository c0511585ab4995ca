"""How the pipeline emits metrics, spans, logs and records, and where they go. What to emit is decided by callers."""
