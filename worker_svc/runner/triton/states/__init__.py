"""Recurrent layers on a GPU: their states move on in kernels, from one row of the store to another."""
