"""Carries out train steps: the contract, and what chooses the backend of a request."""
