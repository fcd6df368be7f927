"""Facts about IR, computed and never written: aliasing, buffer uses, ownership by core, loops, patterns."""
