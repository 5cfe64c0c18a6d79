"""What masks cost: of schemas that people use, and of forms made to be costly."""
