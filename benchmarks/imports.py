"""What importing and starting costs, each beside its ceiling, in one run.

python benchmarks/imports.py [RUNS]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

BARE_TYPER = """
import typer
app = typer.Typer(help="A bare program.")
@app.command()
def one(name: str = "x") -> None:
    "One command."
@app.command()
def two(name: str = "y") -> None:
    "Another."
app()
"""


def main(runs: int) -> None:
    with TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.py"
        bare.write_text(BARE_TYPER)
        pairs = [
            ("import asyncio", "import bide", ["-c", "import asyncio"], ["-c", "import asyncio, bide"]),
            ("bare typer --help", "bide --help", [str(bare), "--help"], ["-m", "bide", "--help"]),
        ]
        for bare_name, name, bare_words, words in pairs:
            bare_ms, ours_ms = in_turn(bare_words, words, runs)
            print(f"{bare_name:20} {bare_ms:7.1f} ms")
            print(f"{name:20} {ours_ms:7.1f} ms   {ours_ms - bare_ms:+.1f} ms   ×{ours_ms / bare_ms:.2f}")


def in_turn(bare: list[str], ours: list[str], runs: int) -> tuple[float, float]:
    """Medians in milliseconds of both, run in turn so that drift of the machine meets both."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(runs + 1):
        for words, kept in zip((bare, ours), times, strict=True):
            began = time.perf_counter()
            subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
            if turn:  # the first round warms the file cache
                kept.append((time.perf_counter() - began) * 1000)
    return statistics.median(times[0]), statistics.median(times[1])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
