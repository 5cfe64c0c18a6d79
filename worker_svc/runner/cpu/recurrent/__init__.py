"""Layers with a recurrent state, whose rows of a batch run in one native call."""
