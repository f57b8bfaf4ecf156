"""Ratios, each measured in one run on one machine: `make bench`, or `python -m benchmarks NAME …`."""
