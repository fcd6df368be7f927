"""A file that --load cannot import."""

raise ValueError("no passes today")
