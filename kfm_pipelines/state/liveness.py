"""Whether a kept connection may have died, without asking the server: a question before every statement would cost as
much as many statements do."""

import select


def may_have_died(descriptor: int) -> bool:
    """A server that closes a connection, or stops, leaves something to be read on it; so does one that has news. From
    a quiet one nothing is known to be wrong: should its network be gone, a question would find out no sooner than the
    next statement."""
    asked = select.poll()
    asked.register(descriptor, select.POLLIN)
    return bool(asked.poll(0))
