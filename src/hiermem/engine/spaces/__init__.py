"""Notes and bank files: reads, writes and consolidates a space."""
