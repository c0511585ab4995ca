"""Great Expectations: suites as reviewed files in resources/expectations, judged like any other rule of a gate.

Belongs here: reading a suite (`suite`), what may stand in one (`vocabulary`), letting GX judge it (`running`), and what
a gate says of that (`judging`). Does not: when it is judged, or where reports are kept. GX takes seconds to import, so
that happens where it runs and nowhere else.
"""

from kfm_pipelines.gates.expectations.findings import SuiteResult, judge_suite
from kfm_pipelines.gates.expectations.suite import Expectation, Suite, load_suite, suite_digest, suites_of

__all__ = ["Expectation", "Suite", "SuiteResult", "judge_suite", "load_suite", "suite_digest", "suites_of"]
