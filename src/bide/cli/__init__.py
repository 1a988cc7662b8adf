"""The command line: thin commands over :mod:`bide.app`. Nothing here is imported before a command needs it."""
