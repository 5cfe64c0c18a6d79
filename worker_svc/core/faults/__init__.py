"""What fails with a step: one request, or the model under all of them."""
