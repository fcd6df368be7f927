"""Command line tools: thin mains over the library, each ``main(argv=None) -> int``."""
