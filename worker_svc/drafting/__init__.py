"""Where drafts come from, as far as no model is needed."""
