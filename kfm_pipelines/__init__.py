"""KFM Pipelines: governed, event-driven ingestion of the Kansas Frontier Matrix."""
