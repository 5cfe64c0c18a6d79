"""Who goes first, and who has to make room: policies, tenants, and what each of them has had."""
