"""Places notes in the files that rules name, by rule."""
