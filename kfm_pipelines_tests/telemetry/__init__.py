"""What work costs."""
