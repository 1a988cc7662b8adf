"""``python -m bide`` is the same as ``bide``."""

from bide.cli.main import run

if __name__ == "__main__":
    run()
