"""Stores that keep everything durable, each behind :class:`bide.provider.Provider`.

``memory`` is the reference model, ``sqlite`` the default. Nothing is imported here, so that no driver is loaded
that is not used.
"""
