"""Lets GX judge a suite: quietly, without a network, and without a value of the data in what comes back."""

import builtins
import logging
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kfm_pipelines.errors import DeclarationInvalid
from kfm_pipelines.gates.expectations.suite import Suite

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext

POSITION = "place"  # in an expectation's meta: GX gives results back in an order of its own
COUNTS = ("element_count", "missing_count", "unexpected_count")
PERCENTS = ("missing_percent", "unexpected_percent", "unexpected_percent_nonmissing", "unexpected_percent_total")
# What these observe is a number of rows or of different values, not a value.
COUNT_EXPECTATIONS = frozenset(
    {
        "expect_column_proportion_of_non_null_values_to_be_between",
        "expect_column_proportion_of_unique_values_to_be_between",
        "expect_column_unique_value_count_to_be_between",
        "expect_table_row_count_to_be_between",
        "expect_table_row_count_to_equal",
    }
)


def run_suite(suite: Suite, data: "pa.Table | pd.DataFrame", *, values: bool) -> "ExpectationSuiteValidationResult":
    """GX's own result; `values` asks for a few of the data as examples. Without, some still are: see `strip_values`."""
    with _quiet(), _without_fingerprint():
        context = _context()
        batch = (
            context.data_sources.add_pandas("kfm")
            .add_dataframe_asset(suite.name)
            .add_batch_definition_whole_dataframe("whole")
            .get_batch({"dataframe": frame_of(suite, data)})
        )
        shape = {"result_format": "BASIC", "partial_unexpected_count": 3 if values else 0}
        result: ExpectationSuiteValidationResult = batch.validate(_gx_suite(suite), result_format=shape)
    for one in result.results:
        one.success = bool(one.success)  # some are NumPy's, which are no JSON
    return result


def strip_values(result: "ExpectationSuiteValidationResult") -> None:
    """Take out of it whatever tells values of the data."""
    for one in result.results:
        one.result = redact_result(one)
        one.exception_info = redact_exception(one)


def frame_of(suite: Suite, data: "pa.Table | pd.DataFrame") -> "pd.DataFrame":
    """The columns the suite is about, and no others."""
    import pandas as pd

    if isinstance(data, pd.DataFrame):
        return data
    table = add_ratio_columns(suite, data)
    needed = dict.fromkeys(column for expectation in suite.expectations for column in expectation.columns)
    if not needed:
        return pd.DataFrame(index=range(table.num_rows))
    return table.select(list(needed)).to_pandas(date_as_object=False)


def add_ratio_columns(suite: Suite, table: "pa.Table") -> "pa.Table":
    """Something divided by nothing is endless, and so is nothing divided by nothing: as no number it would pass."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, parts in suite.meta.ratios.items():
        if set(parts) <= set(table.column_names):
            above, below = (table.column(part).cast(pa.float64(), safe=False) for part in parts)
            ratio = pc.divide(above, below)
            table = table.append_column(name, pc.if_else(pc.is_nan(ratio), float("inf"), ratio))
    return table


def redact_exception(one: "ExpectationValidationResult") -> dict[str, Any]:
    """What GX says of an exception without its words, which may quote the data."""
    exception_info: dict[str, Any] = one.exception_info
    entries = [exception_info] if "raised_exception" in exception_info else list(exception_info.values())
    failed = [entry for entry in entries if entry.get("raised_exception")]
    if not failed:
        return {"raised_exception": False, "exception_message": None, "exception_traceback": None}
    kind = _exception_name(str(failed[0].get("exception_traceback")))
    return {"raised_exception": True, "exception_message": kind, "exception_traceback": "not shown"}


def _exception_name(traceback: str) -> str:
    """The name of the first exception in it, if Python knows it."""
    named = re.findall(r"^(\w+)(?::|$)", traceback, re.MULTILINE)
    return next((name for name in named if isinstance(getattr(builtins, name, None), type)), "Exception")


def position_of(one: "ExpectationValidationResult") -> int | None:
    """Which of the suite's expectations a result is about."""
    config = one.expectation_config
    place: int | None = config.meta.get(POSITION) if config and config.meta else None
    return place


def redact_result(one: "ExpectationValidationResult") -> dict[str, Any]:
    counting = one.expectation_config is not None and one.expectation_config.type in COUNT_EXPECTATIONS
    counted = "element_count" in one.result  # counts without it are half a story, on which GX's own pages stumble
    kept = (*((*COUNTS, *PERCENTS) if counted else ()), *(("observed_value",) if counting else ()))
    return {name: one.result[name] for name in kept if name in one.result}


def _gx_suite(suite: Suite) -> Any:
    import great_expectations as gx
    from great_expectations.exceptions.exceptions import GreatExpectationsError

    expectations = [
        one.model_dump(include={"type", "kwargs", "severity"}) | {"meta": one.meta.model_dump() | {POSITION: place}}
        for place, one in enumerate(suite.expectations)
    ]
    try:
        return gx.ExpectationSuite(name=suite.name, expectations=expectations)
    except (ValueError, TypeError, GreatExpectationsError) as error:
        raise DeclarationInvalid(f"{suite.name}.json: GX refuses it: {' '.join(str(error).split())[:300]}") from None


def _context() -> "EphemeralDataContext":
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
    return context


@contextmanager
def _without_fingerprint() -> Iterator[None]:
    """GX hashes every table below a size, for nothing that is used here: two thirds of the time a suite takes on a
    million rows. A few values can be told from their hash, too, and what cannot be hashed it pickles."""
    from great_expectations.execution_engine import pandas_execution_engine as engine

    before = engine.HASH_THRESHOLD
    engine.HASH_THRESHOLD = 0
    try:
        yield
    finally:
        engine.HASH_THRESHOLD = before


@contextmanager
def _quiet() -> Iterator[None]:
    """Neither logs nor warnings: both may quote the data. Versions of GX that report on their use are told not to."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    logger, nowhere = logging.getLogger("great_expectations"), logging.NullHandler()
    was = logger.propagate
    logger.propagate = False  # some of the loggers below it have levels of their own, so a level would not do
    logger.addHandler(nowhere)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.removeHandler(nowhere)
        logger.propagate = was
