"""Something that goes wrong again and again, said once. How often it went wrong is for a counter to tell."""

import logging


class Complaint:
    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._said = False

    def say(self, text: str, *about: object) -> None:
        if not self._said:
            self._said = True
            self._log.warning(text, *about)
