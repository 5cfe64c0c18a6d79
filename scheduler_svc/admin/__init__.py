"""What operators ask and set: the board, explanations, tenants."""
