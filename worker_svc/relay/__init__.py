"""The relay service: carries the links of a node's workers over one stream to the scheduler."""
