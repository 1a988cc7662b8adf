"""Benches of the providers that come with bide: on a virtual clock, with a side door of each store's own."""
