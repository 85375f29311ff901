"""Select contexts, and refine them where a question points."""
