"""Decides how a summary is made: its inputs, the order, the request, and whether it is fit."""
