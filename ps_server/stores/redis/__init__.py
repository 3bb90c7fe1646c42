"""Rows in Redis: one server or a Redis Cluster. The only package that imports redis."""
