"""How a question finds what was said: terms, the index, the ranking, the evidence."""
