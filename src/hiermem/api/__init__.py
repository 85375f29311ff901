"""The public classes: memory, session, space, extractor, and their blocking faces."""
