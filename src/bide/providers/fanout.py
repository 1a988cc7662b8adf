"""What an event becomes for its subscribers: the same envelope for each, as a work item of their own."""

from __future__ import annotations

from bide.core.delivery import envelope
from bide.provider import DELIVERIES, EventRow, NewItem, Subscription


def envelope_of(event: EventRow, previous: str | None) -> str:
    """What deliveries of ``event`` carry; ``previous`` is the payload of the poll's event before it."""
    return envelope(
        name=event.name,
        event_id=event.id,
        seq=event.seq,
        created_at=event.created_at,
        connection=event.poll.partition(".")[0],
        poll=event.poll,
        occurred_at=event.occurred_at,
        payload=event.payload,
        previous=previous,
    )


def delivery_of(event: EventRow, subscription: Subscription, text: str) -> NewItem:
    """The work item that brings ``event``, as ``text``, to a subscriber."""
    return NewItem(
        id=f"{event.id}.{subscription.name}",
        queue=DELIVERIES,
        name=subscription.name,
        payload=text,
        max_attempts=subscription.max_attempts,
        within=subscription.within,
        order_key=subscription.name if subscription.ordered else None,
    )
