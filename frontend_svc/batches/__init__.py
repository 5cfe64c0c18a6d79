"""Files and batches on a local disk that the frontends of one machine share, and who works through the batches."""
