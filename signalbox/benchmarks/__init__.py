"""Measurements that anyone can run again. No service imports these, and no image holds them."""
