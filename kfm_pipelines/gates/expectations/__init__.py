"""Great Expectations suites: reviewed files in resources/expectations, judged like other rules of a gate. Importing
GX takes seconds, so only the functions that run it import it.
"""

from kfm_pipelines.gates.expectations.findings import SuiteResult, judge_suite
from kfm_pipelines.gates.expectations.suite import Expectation, Suite, load_suite, suite_digest, suites_of

__all__ = ["Expectation", "Suite", "SuiteResult", "judge_suite", "load_suite", "suite_digest", "suites_of"]
