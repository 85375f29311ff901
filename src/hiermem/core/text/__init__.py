"""What a text is: its policy, its fences, its pieces, its words, the facts that it must keep."""
