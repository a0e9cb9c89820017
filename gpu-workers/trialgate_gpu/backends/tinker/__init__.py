"""Drives a trainer server that speaks Tinker's API."""
