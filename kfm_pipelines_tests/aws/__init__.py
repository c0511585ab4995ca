"""Messaging, against the real emulator."""
