"""The QA gate: whether values make sense, by the thresholds that a dataset declares."""
