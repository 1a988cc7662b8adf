"""A command that hears events: each comes as JSON on standard input, and is kept as a line of ledger.jsonl."""

import json
import sys

event = json.load(sys.stdin)
with open("ledger.jsonl", "a", encoding="utf-8") as ledger:
    ledger.write(json.dumps({"id": event["id"], "seq": event["seq"], **event["data"]}) + "\n")
