"""Comparing methods, and printing what came out."""
