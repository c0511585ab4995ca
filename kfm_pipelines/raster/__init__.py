"""Rasters: reading them safely, clipping, Cloud-Optimised GeoTIFFs, statistics, pictures and H3 cells."""
