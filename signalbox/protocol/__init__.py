"""What requests and messages are made of, for whoever reads or writes them."""
