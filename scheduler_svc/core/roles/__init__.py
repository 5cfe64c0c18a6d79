"""Prefill and decode on workers of their own, where that pays (PD)."""
