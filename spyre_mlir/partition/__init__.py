"""Which operations of a program run on the device and which on the host: the mathematics, without IR."""
