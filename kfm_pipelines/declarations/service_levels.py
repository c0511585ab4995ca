"""What a dataset promises those who use it: how fresh, how quick, how reliable.

None of it is about what comes out, so it is no part of a dataset's digest.
"""

from datetime import timedelta
from typing import Annotated

from pydantic import Field, field_validator

from kfm_pipelines.declarations.timeliness import Duration
from kfm_pipelines.declarations.words import Declared

# 100 leaves nothing that may go wrong: whatever is reckoned with a budget would divide by it.
PercentGood = Annotated[float, Field(gt=0, lt=100)]


class ServiceLevel(Declared):
    freshness: Duration | None = None  # how long after a publication the next has to come; unsaid, nobody waits for it
    latency: Duration = timedelta(minutes=5)  # from sent to published
    latency_percent: PercentGood = 95.0  # of the events that are to be as quick as that
    success_percent: PercentGood = 99.0  # of the keys that are to be published, or to need nothing

    @field_validator("freshness", "latency")
    @classmethod
    def _takes_time(cls, duration: timedelta | None) -> timedelta | None:
        # Dagster looks at freshness once a minute, and refuses less.
        if duration is not None and duration < timedelta(minutes=1):
            raise ValueError("must be at least 1 min")
        return duration
