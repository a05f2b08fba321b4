"""`posthouse demo`: one hour of a shop, played twice through the same outage, and counted in the provider's ledger."""
