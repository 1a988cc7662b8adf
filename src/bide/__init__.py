"""bide: durable polling for Python."""

__version__ = "0.1.0"
