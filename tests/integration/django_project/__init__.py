"""A small Django project that enqueues emails, as an application would: nothing of ours in its settings."""
