"""The sandbox: an email provider that fails on request, remembers the truth, and shows the mail it caught."""
