"""Combinatorial optimization on arrays: elimination, linear bounds, branch and bound, packing. No device words."""
