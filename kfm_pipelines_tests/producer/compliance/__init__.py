"""The kit itself: our producer passes, and every kind of bad one is caught by the check that is about it."""
