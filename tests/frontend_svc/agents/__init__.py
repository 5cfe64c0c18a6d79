"""Tests of the faces that agents speak with."""
