"""Random pairs of forms and sampling fields, from a client's request to its end (G16, G17, G18)."""
