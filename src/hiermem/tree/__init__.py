"""Decides how messages become windows and windows become levels: one fold over a session's log."""
