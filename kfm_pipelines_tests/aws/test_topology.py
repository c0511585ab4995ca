"""What is wanted, before anybody asks AWS: filters within SNS's limits, ARNs of the right place."""

from kfm_pipelines.aws.topology import AwsAccount, QueueSpec, TopicSpec, filter_policy, same_filter
from kfm_pipelines.declarations.dataset import Dataset, Datasets, load_datasets
from kfm_pipelines.settings import shipped_path


def declared(names: int, products: int | None = None) -> Datasets:
    """So many datasets, of so many products."""
    one: Dataset = load_datasets(shipped_path("resources"))["usgs/streamflow"]
    each = {f"usgs/d{number}": f"p{number % (products or names)}" for number in range(names)}
    return Datasets({name: one.model_copy(update={"dataset": name, "product": each[name]}) for name in each})


def test_a_filter_names_what_is_declared() -> None:
    datasets = load_datasets(shipped_path("resources"))
    announced = {name: one for name, one in datasets.items() if not one.input.upstream}
    assert filter_policy(datasets, ("high",)) == {
        "dataset": sorted(announced),
        "product": sorted({one.product for one in announced.values()}),
        "priority": ["high"],
    }


def test_a_filter_never_has_more_combinations_than_sns_takes() -> None:
    assert set(filter_policy(declared(12), ("high",))) == {"dataset", "product", "priority"}  # 144
    assert set(filter_policy(declared(13), ("high",))) == {"dataset", "priority"}  # 169 with the product
    assert set(filter_policy(declared(37, products=2), ("normal", "low"))) == {"dataset", "product", "priority"}  # 148
    assert set(filter_policy(declared(75), ("normal", "low"))) == {"dataset", "priority"}  # 150
    assert set(filter_policy(declared(76), ("normal", "low"))) == {"priority"}
    assert set(filter_policy(declared(150), ("high",))) == {"dataset", "priority"}
    assert set(filter_policy(declared(151), ("high",))) == {"priority"}


def test_without_declarations_a_filter_names_no_empty_list() -> None:
    assert filter_policy(Datasets({}), ("high",)) == {"priority": ["high"]}


def test_a_filter_is_the_same_in_any_order() -> None:
    wanted = {"dataset": ["a", "b"], "priority": ["high"]}
    assert same_filter('{"priority": ["high"], "dataset": ["b", "a"]}', wanted)
    assert not same_filter('{"priority": ["high"]}', wanted)
    assert not same_filter(None, wanted)
    assert same_filter(None, None)
    assert same_filter("{}", None)
    assert not same_filter('{"priority": ["high"]}', None)


def test_every_arn_is_of_the_same_place() -> None:
    place = AwsAccount("aws-us-gov", "us-gov-west-1", "123456789012")
    queue = QueueSpec("q.fifo", 120, "d.fifo", ("t.fifo",))
    assert "arn:aws-us-gov:sqs:us-gov-west-1:123456789012:d.fifo" in queue.redrive_settings(place)["RedrivePolicy"]
    statement = queue.statement(place) or {}
    assert statement["Resource"] == "arn:aws-us-gov:sqs:us-gov-west-1:123456789012:q.fifo"
    assert statement["Condition"] == {
        "ArnEquals": {"aws:SourceArn": ["arn:aws-us-gov:sns:us-gov-west-1:123456789012:t.fifo"]}
    }
    published = TopicSpec("t", ("b",)).statement(place) or {}
    assert published["Condition"] == {
        "ArnEquals": {"aws:SourceArn": ["arn:aws-us-gov:s3:::b"]},
        "StringEquals": {"aws:SourceAccount": "123456789012"},
    }
