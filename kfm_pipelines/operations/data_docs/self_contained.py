"""Pages that load nothing from elsewhere: whoever looks at them tells nobody, and needs no network to see them."""

import re
from functools import cache
from importlib.resources import files

# What Great Expectations' pages fetch: style, scripts, its logo with the time of the page in the address, a newsletter.
_ELSEWHERE = re.compile(
    rb"""<script\b[^>]*\bsrc\s*=\s*["']?https?:[^>]*>\s*</script>|<(?:link|img)\b[^>]*\b(?:href|src)\s*=\s*["']?https?:[^>]*>""",
    re.IGNORECASE,
)
_FOOTER = re.compile(rb"<footer\b.*?</footer>", re.IGNORECASE | re.DOTALL)


def self_contained(page: bytes) -> bytes:
    """The page without what it would load, and with a little style of our own."""
    alone = _FOOTER.sub(b"", _ELSEWHERE.sub(b"", page))
    return alone.replace(b"</head>", b"<style>" + style() + b"</style></head>", 1)


@cache
def style() -> bytes:
    return (files(__package__) / "pages.css").read_bytes()
