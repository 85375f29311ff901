"""What becomes of live notes: the files that rules name, and how an answer changes them."""
