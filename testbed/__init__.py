"""Servers, programs and inputs that tests, benchmarks and hardening share. Nothing of it is installed."""
