"""Numbers as people read them."""


def plain(value: float | None, digits: int = 3) -> str:
    """So many digits that count, and no powers of ten, however small it is."""
    if value is None:
        return "unknown"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    exponent = int(f"{abs(rounded):e}".partition("e")[2])
    return f"{rounded:,.{max(0, digits - 1 - exponent)}f}"


def percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.0f} %"
