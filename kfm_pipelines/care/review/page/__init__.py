"""The page a reviewer decides by: maps before and after, policy, measures, difference. Pure: values in, bytes out."""
