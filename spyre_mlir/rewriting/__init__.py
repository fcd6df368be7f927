"""Changes of IR that passes share: copies, outlining, loops, windows, layouts in types, builders."""
