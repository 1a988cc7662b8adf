"""What an open provider is made of."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from bide.clock import Clock
from bide.provider import DELIVERIES
from bide.providers.s3.auditing import Audit
from bide.providers.s3.bucket import Bucket
from bide.providers.s3.documents import Documents
from bide.providers.s3.ending import Ending
from bide.providers.s3.fetching import Taking
from bide.providers.s3.holding import Held
from bide.providers.s3.intake import Intake
from bide.providers.s3.mending import Mending
from bide.providers.s3.poll_documents import Changes, PollDocuments
from bide.providers.s3.settling import Settling
from bide.providers.s3.store import Store
from bide.providers.s3.subscriptions import Subscriptions
from bide.providers.s3.sweeping import Sweeping


@dataclass(frozen=True, slots=True)
class Parts:
    """One store, and what works on it."""

    store: Store
    held: Held
    intake: Intake
    mending: Mending
    taking: Taking
    settling: Settling
    documents: Documents
    subscriptions: Subscriptions
    poll_documents: PollDocuments
    changes: Changes
    ending: Ending
    sweeping: Sweeping

    @classmethod
    def of(cls, bucket: Bucket, clock: Clock, shards: int) -> Parts:
        """All of it, for a process of its own: its shard is drawn from its name."""
        store, held = Store(bucket, clock, shards), Held()
        intake, mending = Intake(store), Mending(store)
        shard = zlib.crc32(clock.new_id().encode()) % shards
        documents, ending = Documents(store), Ending(store)
        subscriptions = Subscriptions(documents)
        poll_documents, changes = PollDocuments(store, documents), Changes(store)
        audit = Audit(
            store,
            documents=documents,
            poll_documents=poll_documents,
            changes=changes,
            intake=intake,
            mending=mending,
            ending=ending,
            subscriptions=subscriptions,
        )
        return cls(
            store=store,
            held=held,
            intake=intake,
            mending=mending,
            taking=Taking(store, held, mending, shard),
            settling=Settling(store, held, intake),
            documents=documents,
            subscriptions=subscriptions,
            poll_documents=poll_documents,
            changes=changes,
            ending=ending,
            sweeping=Sweeping(
                store,
                poll_documents=poll_documents,
                changes=changes,
                keys=intake.keys,
                ending=ending,
                audit=audit,
            ),
        )

    def may_be_delivery(self, token: str) -> bool:
        """Whether a lock token may be that of a delivery."""
        kept = self.held.get(token)
        return kept is None or kept.item.queue == DELIVERIES
