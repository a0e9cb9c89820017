"""Runs the trainer as a group of ranks: processes that a controller starts, commands and ends."""
