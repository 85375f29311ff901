"""Changes a session's log: append, edit, erase, fork; and reads it back."""
