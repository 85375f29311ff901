"""How things, links and open questions are found in a session and become one graph."""
