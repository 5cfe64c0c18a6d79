"""Benches and checks that run from a checkout, in no wheel. Those of services are in `signalbox.benchmarks`."""
