"""Fuzz targets, and short runs of them."""
