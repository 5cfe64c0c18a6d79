"""The API's own description: made of its routes and of the models that it reads bodies with."""
