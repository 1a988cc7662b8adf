"""Background work: tasks that are submitted, retried, limited and run by themselves.

python examples/mail.py                                    submits some work, runs it, and ends
bide worker mail:app                                       in this folder: works until Ctrl-C
bide submit -a mail:app send_mail to=you@example.org       meanwhile: something for it to do

All of it is kept in mail.db, in the current folder, unless the variable MAIL_STORE names another store.
"""

import asyncio
import os
from datetime import date

from bide import App, Context, Discard, Retry, TaskFailed

app = App(os.environ.get("MAIL_STORE", "sqlite:///mail.db"))
app.queue("mail", limit=10, per_key=2)


@app.task(queue="mail", keep_result="1h")
async def send_mail(to: str, context: Context, subject: str = "hello") -> None:
    """What is raised is tried again, five times in all; ``context.id`` is the same at every attempt."""
    if "@" not in to:
        raise Discard(f"{to!r} is no address")
    if context.attempt == 1 and to.startswith("busy"):
        raise Retry(after="50ms", reason="the server is busy")
    print(f"to {to}: {subject} (attempt {context.attempt})")


@app.task(keep_result="1h")
def count_days(since: date, until: date) -> int:
    """A plain function runs on a thread. What it returns is kept for an hour."""
    return (until - since).days


@app.task(cron="0 9 * * MON-FRI", timezone="Europe/Berlin")
async def remind() -> None:
    """Runs by itself, once for all workers, and submits more work."""
    await send_mail.submit("team@example.org", subject="good morning")


async def main() -> None:
    """Submit, run a worker until all is done, and look at what came of it."""
    async with app.open():
        people = [{"to": "ann@example.org"}, {"to": "busy@example.org"}]
        sent = await send_mail.submit_many(people, limit_key="example.org")
        wrong = await send_mail.submit("nobody", key="once")
        days = await count_days.submit(date(2026, 1, 31), until=date(2026, 3, 1))
        stopping = asyncio.Event()
        working = asyncio.create_task(app.worker().run(stopping=stopping))
        for handle in sent:
            await handle.result(timeout="10s")
        print("days:", await days.result(timeout="10s"))
        try:
            await wrong.result(timeout="10s")
        except TaskFailed as failed:
            print("given up:", failed.reason)
        stopping.set()
        await working


if __name__ == "__main__":
    asyncio.run(main())
