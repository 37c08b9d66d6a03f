"""Everything that attaches to a module, and lets go of it."""
