"""Declarations of datasets, from a first file to publication: written, checked, tried and wired."""
