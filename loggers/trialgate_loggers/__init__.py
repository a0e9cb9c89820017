"""Writes the steps of a run to the logger that a user keeps metrics in, through that logger's own library."""
