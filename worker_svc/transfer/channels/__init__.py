"""How bytes of blocks get from one worker's memory to another's, and who may have them."""
