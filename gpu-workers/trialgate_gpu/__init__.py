"""Trialgate's GPU worker: GRPO steps and weight publication, served as Temporal activities on the task queue `gpu`."""
