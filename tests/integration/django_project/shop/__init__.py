"""The shop: its orders, and the emails about them."""
