"""How a refusal begins: never with which record, only with how many."""


def records(count: int) -> str:
    return "1 record has" if count == 1 else f"{count} records have"
