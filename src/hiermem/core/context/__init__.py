"""What a context shows inside its budget, in which form, and what stays where it was."""
