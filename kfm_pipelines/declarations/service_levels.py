"""What a dataset promises those who use it. How quick and reliable all of them are is promised in `resources/slo.yaml`.

None of it is about what comes out, so it is no part of a dataset's digest.
"""

from datetime import timedelta

from pydantic import field_validator

from kfm_pipelines.declarations.timeliness import Duration
from kfm_pipelines.declarations.words import Declared


class ServiceLevel(Declared):
    freshness: Duration | None = None  # how long after a publication the next has to come; unsaid, nobody waits for it

    @field_validator("freshness")
    @classmethod
    def _takes_time(cls, freshness: timedelta | None) -> timedelta | None:
        # Dagster looks at freshness about once a minute, and refuses less.
        if freshness is not None and freshness < timedelta(minutes=1):
            raise ValueError("must be at least 1 min")
        return freshness
