"""Reliable email sending for applications: an outbox in your own database."""
