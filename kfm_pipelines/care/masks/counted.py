"""How refusals count: never which record, only how many."""


def records(count: int) -> str:
    return "1 record has" if count == 1 else f"{count} records have"
