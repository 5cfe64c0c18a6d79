"""Why a request waits, for whoever asks: nothing here runs unless somebody does."""
