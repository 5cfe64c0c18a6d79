"""Who uses hand-offs besides drains: policies that begin them unasked."""
