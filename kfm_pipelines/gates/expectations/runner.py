"""Runs GX on a suite: quietly, without a network, and with no value of the data in the result."""

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

NUMBERED = " numbered"  # no name of a declared column ends like this
POSITION = "place"  # in the meta of an expectation, because GX reorders results
COUNTS = ("element_count", "missing_count", "unexpected_count")
PERCENTS = ("missing_percent", "unexpected_percent", "unexpected_percent_nonmissing", "unexpected_percent_total")
# These observe numbers of rows or of distinct values, never a value.
COUNT_EXPECTATIONS = frozenset(
    {
        "expect_column_proportion_of_non_null_values_to_be_between",
        "expect_column_proportion_of_unique_values_to_be_between",
        "expect_column_unique_value_count_to_be_between",
        "expect_table_row_count_to_be_between",
        "expect_table_row_count_to_equal",
    }
)
# These only ask which values are equal, so numbers can stand for texts.
EQUALITY_EXPECTATIONS = frozenset(
    {
        "expect_column_proportion_of_unique_values_to_be_between",
        "expect_column_unique_value_count_to_be_between",
        "expect_column_values_to_be_unique",
        "expect_compound_columns_to_be_unique",
    }
)


def run_suite(suite: Suite, data: "pa.Table | pd.DataFrame", *, values: bool) -> "ExpectationSuiteValidationResult":
    """Returns GX's own result, with a few examples if `values`. It contains values either way: see `strip_values`."""
    import pyarrow as pa

    judged = suite
    if isinstance(data, pa.Table) and not values:
        judged, data = _number_texts(suite, data)
    with _quiet(), _without_fingerprint():
        context = _context()
        batch = (
            context.data_sources.add_pandas("kfm")
            .add_dataframe_asset(suite.name)
            .add_batch_definition_whole_dataframe("whole")
            .get_batch({"dataframe": frame_of(judged, data)})
        )
        shape = {"result_format": "BASIC", "partial_unexpected_count": 3 if values else 0}
        result: ExpectationSuiteValidationResult = batch.validate(_gx_suite(judged), result_format=shape)
    for one in result.results:
        one.success = bool(one.success)  # some are NumPy booleans, which JSON cannot encode
        place = position_of(one)
        if one.expectation_config is not None and place is not None:
            one.expectation_config.kwargs.update(suite.expectations[place].kwargs)
    return result


def _number_texts(suite: Suite, table: "pa.Table") -> "tuple[Suite, pa.Table]":
    """Has the suite use numbers for texts where only equality counts: GX hashes texts again for each expectation."""
    import pyarrow as pa

    from kfm_pipelines.parquet.distinct_values import NO_VALUE, encode_column

    asked = {name for one in suite.expectations if one.type in EQUALITY_EXPECTATIONS for name in one.columns}
    texts = [field.name for field in table.schema if field.name in asked and field.type == pa.string()]
    numbers = {name: f"{name}{NUMBERED}" for name in texts}
    for name, number in numbers.items():
        codes = encode_column(table.column(name)).codes
        table = table.append_column(number, pa.array(codes, mask=codes == NO_VALUE))
    expectations = [
        one.with_columns(numbers) if one.type in EQUALITY_EXPECTATIONS else one for one in suite.expectations
    ]
    return suite.model_copy(update={"expectations": expectations}), table


def strip_values(result: "ExpectationSuiteValidationResult") -> None:
    for one in result.results:
        one.result = redact_result(one)
        one.exception_info = redact_exception(one)


def frame_of(suite: Suite, data: "pa.Table | pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    if isinstance(data, pd.DataFrame):
        return data
    table = add_ratio_columns(suite, data)
    needed = dict.fromkeys(column for expectation in suite.expectations for column in expectation.columns)
    if not needed:
        return pd.DataFrame(index=range(table.num_rows))
    return table.select(list(needed)).to_pandas(date_as_object=False)


def add_ratio_columns(suite: Suite, table: "pa.Table") -> "pa.Table":
    """Appends the ratios; 0 / 0 becomes infinity, because NaN would pass."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, parts in suite.meta.ratios.items():
        if set(parts) <= set(table.column_names):
            above, below = (table.column(part).cast(pa.float64(), safe=False) for part in parts)
            ratio = pc.divide(above, below)
            table = table.append_column(name, pc.if_else(pc.is_nan(ratio), float("inf"), ratio))
    return table


def redact_exception(one: "ExpectationValidationResult") -> dict[str, Any]:
    """Returns GX's record of an exception without its message, which may quote the data."""
    exception_info: dict[str, Any] = one.exception_info
    entries = [exception_info] if "raised_exception" in exception_info else list(exception_info.values())
    failed = [entry for entry in entries if entry.get("raised_exception")]
    if not failed:
        return {"raised_exception": False, "exception_message": None, "exception_traceback": None}
    kind = _exception_name(str(failed[0].get("exception_traceback")))
    return {"raised_exception": True, "exception_message": kind, "exception_traceback": "not shown"}


def _exception_name(traceback: str) -> str:
    """Returns the first exception named in the traceback, if it is a built-in one."""
    named = re.findall(r"^(\w+)(?::|$)", traceback, re.MULTILINE)
    return next((name for name in named if isinstance(getattr(builtins, name, None), type)), "Exception")


def position_of(one: "ExpectationValidationResult") -> int | None:
    config = one.expectation_config
    place: int | None = config.meta.get(POSITION) if config and config.meta else None
    return place


def redact_result(one: "ExpectationValidationResult") -> dict[str, Any]:
    counting = one.expectation_config is not None and one.expectation_config.type in COUNT_EXPECTATIONS
    counted = "element_count" in one.result  # without it, GX's own pages fail on the other counts
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
    """Turns off GX's hashing of tables, which is slow and unused; short tables could be guessed from it."""
    from great_expectations.execution_engine import pandas_execution_engine as engine

    before = engine.HASH_THRESHOLD
    engine.HASH_THRESHOLD = 0
    try:
        yield
    finally:
        engine.HASH_THRESHOLD = before


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences logs and warnings, which may quote the data, and usage reports of GX."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    logger, nowhere = logging.getLogger("great_expectations"), logging.NullHandler()
    was = logger.propagate
    logger.propagate = False  # child loggers set their own levels
    logger.addHandler(nowhere)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.removeHandler(nowhere)
        logger.propagate = was
