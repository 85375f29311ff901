"""How a summary is made: from what, in which order, by which request, and whether it is fit."""
