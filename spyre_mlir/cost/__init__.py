"""What a plan costs: one model of time, which ranks plans. Pure Python and numpy, no IR."""
