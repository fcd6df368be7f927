"""A compiled program from the outside: build its steps, save and load them, run them with tensors of the host."""
