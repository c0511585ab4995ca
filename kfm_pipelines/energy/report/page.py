"""The report as one page that needs nothing else: the picture and the table are in it, and there are no scripts."""

from base64 import b64encode
from functools import cache
from typing import TYPE_CHECKING

from kfm_pipelines.energy.report.report import EnergyReport
from kfm_pipelines.energy.report.table import COLUMNS, TEXT_COLUMNS, notes_on, rows_of

if TYPE_CHECKING:
    from jinja2 import Template


def render_page(report: EnergyReport, picture: bytes) -> bytes:
    page = _template().render(
        picture=b64encode(picture).decode(),
        columns=COLUMNS,
        texts=TEXT_COLUMNS,
        rows=rows_of(report),
        notes=notes_on(report),
        sources=report.sources,
    )
    return page.encode()


@cache
def _template() -> "Template":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__, "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("page.html.j2")
