"""The five stages of a key: compute, mask, validate, stage, publish.

Pure: Arrow tables and declarations in, Arrow tables and reports out. No Dagster, no boto3, no clock; the last two talk
only to the store handed to them.
"""
