"""Turns the result of a suite into findings, one for each expectation that fails, and a report of all of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kfm_pipelines.gates.expectations import runner
from kfm_pipelines.gates.expectations.suite import Expectation, Suite
from kfm_pipelines.gates.verdict import Finding, Severity, TableSubject, format_sample

if TYPE_CHECKING:
    import pyarrow as pa
    from great_expectations.core import ExpectationSuiteValidationResult

NOT_PUBLISHED = "not published, so not judged"


@dataclass(frozen=True, slots=True)
class SuiteResult:
    findings: tuple[Finding, ...]
    rules: tuple[str, ...]
    report: dict[str, Any]  # every expectation with its outcome and counts
    # GX's own result, for its pages; None when nothing was judged
    gx: "ExpectationSuiteValidationResult | None" = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ExpectationOutcome:
    """Outcome of one expectation. `success` is None when it was not judged."""

    success: bool | None
    counts: Mapping[str, Any]
    raised: str | None = None
    reason: str = ""


def judge_suite(suite: Suite, subject: TableSubject, *, values: bool = False) -> SuiteResult:
    """Judges the expectations on published columns; on a table without rows, only those about the table. `values` keeps
    observed values in GX's own result and changes nothing else."""
    gx = None
    skipped = {one.name: _skip_reason(one, suite, subject) for one in suite.expectations}
    outcomes = {name: ExpectationOutcome(None, {}, reason=reason) for name, reason in skipped.items() if reason}
    if judged := [one for one in suite.expectations if not skipped[one.name]]:
        asked = suite.model_copy(update={"expectations": judged})
        gx = runner.run_suite(asked, subject.table, values=values)
        outcomes |= _outcomes(asked, gx)
        if not values:
            runner.strip_values(gx)
    findings = [
        finding
        for expectation in suite.expectations
        if (finding := _finding(suite, expectation, outcomes[expectation.name], subject))
    ]
    rules = tuple(expectation.rule for expectation in suite.expectations)
    return SuiteResult(tuple(findings), rules, _report(suite, outcomes, subject), gx)


def _skip_reason(expectation: Expectation, suite: Suite, subject: TableSubject) -> str:
    published = {column.name for column in subject.published.columns}
    if not suite.source_columns(expectation) <= published:
        return NOT_PUBLISHED
    return "no rows" if expectation.columns and subject.table.num_rows == 0 else ""


def _outcomes(suite: Suite, gx: "ExpectationSuiteValidationResult") -> dict[str, ExpectationOutcome]:
    results = {runner.position_of(one): one for one in gx.results}
    return {expectation.name: _outcome(results.get(place)) for place, expectation in enumerate(suite.expectations)}


def _outcome(result: Any) -> ExpectationOutcome:
    if result is None:
        return ExpectationOutcome(False, {}, raised="no result")
    redacted = runner.redact_result(result)
    counts = {name: redacted[name] for name in (*runner.COUNTS, "observed_value") if name in redacted}
    raised = runner.redact_exception(result)["exception_message"]
    return ExpectationOutcome(bool(result.success), counts, raised=raised)


def _finding(
    suite: Suite, expectation: Expectation, outcome: ExpectationOutcome, subject: TableSubject
) -> Finding | None:
    about = ", ".join(expectation.columns) or "table"
    expected = str(expectation)
    if outcome.reason == NOT_PUBLISHED:
        return Finding(expectation.rule, Severity.INFO, about, expected, NOT_PUBLISHED)
    if outcome.raised is not None:
        measured = f"nothing: Great Expectations could not judge it ({outcome.raised})"
        return Finding(expectation.rule, Severity.ERROR, about, expected, measured)
    if outcome.success is not False:
        return None
    sample = _sample_failing_rows(suite, expectation, subject)
    return Finding(expectation.rule, expectation.finding_severity, about, expected, _format_measured(outcome), sample)


def _format_measured(outcome: ExpectationOutcome) -> str:
    counts = outcome.counts
    if "element_count" in counts:
        return f"{counts['unexpected_count']} of {counts['element_count']} rows otherwise"
    if "observed_value" in counts:
        return f"{counts['observed_value']}"
    return "otherwise"


def _sample_failing_rows(suite: Suite, expectation: Expectation, subject: TableSubject) -> str:
    """Samples failing rows, for the expectations where Arrow can find them."""
    from pyarrow import ArrowException

    unlike = _FAILING_ROWS.get(expectation.type)
    if unlike is None or not subject.may_sample:
        return ""
    values = runner.add_ratio_columns(suite, subject.table).column(expectation.kwargs["column"])
    try:
        wrong = unlike(values, expectation.kwargs)
    except (ArrowException, TypeError):  # GX compares more types than Arrow
        return ""
    return format_sample(subject, wrong, *sorted(suite.source_columns(expectation)))


def _out_of_bounds(values: "pa.ChunkedArray", kwargs: Mapping[str, Any]) -> "pa.ChunkedArray":
    import pyarrow.compute as pc

    least, most = kwargs.get("min_value"), kwargs.get("max_value")
    beyond = pc.is_null(values) if least is None else pc.less(values, least)
    return beyond if most is None else pc.or_kleene(beyond, pc.greater(values, most))


def _not_in_set(values: "pa.ChunkedArray", kwargs: Mapping[str, Any]) -> "pa.ChunkedArray":
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pa.array(kwargs["value_set"], values.type)
    return pc.and_(values.is_valid(), pc.invert(pc.is_in(values, value_set=known)))


def _not_matching_pattern(values: "pa.ChunkedArray", kwargs: Mapping[str, Any]) -> "pa.ChunkedArray":
    import pyarrow.compute as pc

    return pc.invert(pc.match_substring_regex(values, kwargs["regex"]))


_FAILING_ROWS: Mapping[str, "Callable[[pa.ChunkedArray, Mapping[str, Any]], pa.ChunkedArray]"] = {
    "expect_column_values_to_be_between": _out_of_bounds,
    "expect_column_values_to_be_in_set": _not_in_set,
    "expect_column_values_to_match_regex": _not_matching_pattern,
}


def _report(suite: Suite, outcomes: Mapping[str, ExpectationOutcome], subject: TableSubject) -> dict[str, Any]:
    return {
        "suite": suite.name,
        "rows": subject.table.num_rows,
        "success": all(outcome.success is not False for outcome in outcomes.values()),
        "expectations": [_report_entry(one, outcomes[one.name]) for one in suite.expectations],
    }


def _report_entry(expectation: Expectation, outcome: ExpectationOutcome) -> dict[str, Any]:
    return {
        "rule": expectation.rule,
        "type": expectation.type,
        "kwargs": expectation.kwargs,
        "severity": expectation.finding_severity.value,
        "why": expectation.meta.why,
        "judged": outcome.success is not None,
        "success": outcome.success,
        "raised": outcome.raised,
        "counts": {name: _to_json_number(value) for name, value in outcome.counts.items()},
    }


def _to_json_number(value: Any) -> int | float:
    """Converts the NumPy numbers of GX."""
    return float(value) if float(value) != int(value) else int(value)
