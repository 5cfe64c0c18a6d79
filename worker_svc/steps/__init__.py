"""The thread that owns core and runner: what arrives is applied, started, collected and reported."""
