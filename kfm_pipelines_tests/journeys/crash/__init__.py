"""Workers killed, stopped and overtaken at every point where it could matter."""
