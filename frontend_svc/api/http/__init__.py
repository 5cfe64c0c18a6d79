"""One call over HTTP: who calls, the body, the answer, and the server that carries it."""
