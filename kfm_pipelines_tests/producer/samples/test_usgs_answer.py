"""An invented answer has the form of a real one, both ends of its hour, and the readings of the sample."""

import json
from datetime import UTC, datetime

from kfm_pipelines.producer.samples.streamflow import GAUGES, streamflow_table
from kfm_pipelines.producer.samples.usgs_answer import usgs_answer
from kfm_pipelines_tests.fixtures.real_files import DATA, needs_data

AT_03, AT_04 = datetime(2025, 12, 4, 3, tzinfo=UTC), datetime(2025, 12, 4, 4, tzinfo=UTC)


def test_it_has_both_ends_of_its_hour_and_the_readings_of_the_sample() -> None:
    name, data = usgs_answer(AT_03)
    assert name == "usgs/streamflow/2025/12/04/03/answer-20251204T03Z.json"
    assert (name, data) == usgs_answer(AT_03)
    flows = [one for one in json.loads(data)["value"]["timeSeries"] if one["name"].endswith(":00060:00000")]
    assert len(flows) == len(GAUGES)
    times = {datetime.fromisoformat(value["dateTime"]) for one in flows for value in one["values"][0]["value"]}
    assert (min(times), max(times), len(times)) == (AT_03, AT_04, 5)
    before_the_end = [value for one in flows for value in one["values"][0]["value"][:4]]
    measured = [None if float(one["value"]) == -999999 else float(one["value"]) for one in before_the_end]
    assert measured == streamflow_table(AT_03)["discharge_cfs"].to_pylist()


@needs_data
def test_it_has_no_field_that_a_real_answer_lacks() -> None:
    def shape(document: object, path: str = "") -> set[str]:
        if isinstance(document, list):
            return {one for each in document for one in shape(each, f"{path}[]")}
        if isinstance(document, dict):
            return {path, *(one for name, each in document.items() for one in shape(each, f"{path}.{name}"))}
        return {path}

    real = json.loads((DATA / "usgs_nwis_iv.json").read_bytes())
    assert shape(json.loads(usgs_answer(AT_03)[1])) <= shape(real)
