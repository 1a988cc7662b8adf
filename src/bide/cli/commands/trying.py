"""``sample`` and ``demo``: something to poll, without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def sample(
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="0 takes a free one.")] = 9000,
    step: Annotated[
        float, typer.Option("--step", min=0.1, max=86_400, help="Seconds between moves of the prices.")
    ] = 3.0,
    secret: Annotated[
        str | None,
        typer.Option("--secret", envvar="BIDE_SAMPLE_SECRET", help="Check signatures of webhooks with it."),
    ] = None,
) -> None:
    """Serve a small API whose prices move.

    On 127.0.0.1: /price, /price/ELM, /prices, /releases/latest; and it takes webhooks at /hook.
    """
    from bide.cli.sample import serve_sample

    serve_sample(port=port, step_s=step, secret=secret)


def demo(
    seconds: Annotated[float, typer.Option("--seconds", min=1, max=86_400, help="How long it runs.")] = 60.0,
    folder: Annotated[Path, typer.Option("--folder", help="Where its files and its database go.")] = Path(
        "demo-run"
    ),
    live: Annotated[
        bool | None,
        typer.Option("--live/--no-live", help="Draw a live view, or log; by default a view on a terminal."),
    ] = None,
) -> None:
    """Watch it all at work for a minute.

    A sample API, polls of it, changes, and three kinds of subscribers. Needs no network.
    """
    from bide.cli.demo import run_demo

    run_demo(seconds=seconds, folder=folder, live=live)
