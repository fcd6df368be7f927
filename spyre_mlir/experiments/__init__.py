"""Experiments: algorithms of anybody, checked and compared."""
