"""What work costs, as far as that can be known."""
