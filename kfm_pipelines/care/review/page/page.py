"""Renders the review page: one HTML file without network access or scripts, in which no character can hide text."""

import re
import shlex
from base64 import b64encode
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from kfm_pipelines.care.review.page.content import ReviewView

MAX_CHANGES = 40
# Controls (except tab and newline), bidi marks, zero-width characters, tags and lone surrogates.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def render_page(review: ReviewView) -> str:
    return _template().render(
        review=review,
        before=_data_uri(review.before_map),
        after=_data_uri(review.after_map),
        approve=_command("approve", review),
        reject=_command("reject", review),
        max_changes=MAX_CHANGES,
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        finalize=reveal_invisible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("template.html.j2")


def reveal_invisible(value: object) -> object:
    """Replaces characters that are invisible or reorder text by their code points."""
    # The output of a macro has been processed already.
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return _INVISIBLE.sub(lambda found: f"[U+{ord(found.group()):04X}]", value)


def _data_uri(png: bytes | None) -> str | None:
    return None if png is None else f"data:image/png;base64,{b64encode(png).decode('ascii')}"


def _command(decision: str, review: ReviewView) -> str:
    """Returns a command that is safe to paste into a shell."""
    key, digest = shlex.quote(review.key), shlex.quote(review.release_digest)
    return f"kfm review {decision} {key} \\\n  --digest {digest} \\\n  --key FILE --reason 'WHY'"
