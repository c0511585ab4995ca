"""How we use Dagster: names, tags, schedules, the services resource, the instance and its logs."""
