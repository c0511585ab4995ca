"""Operations: what a sensor tick, a schedule or an operator does to the whole, without Dagster."""
