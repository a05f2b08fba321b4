"""What the world may call: webhooks, and whether this process lives and is ready."""
