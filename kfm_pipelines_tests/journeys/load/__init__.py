"""Many events, many keys, several workers at once."""
