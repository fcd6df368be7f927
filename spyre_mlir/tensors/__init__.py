"""Tensors in device memory, in layouts that their owner chooses, and views of them."""
