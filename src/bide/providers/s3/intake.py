"""How items come into the store, all of those that come together or none.

One item without a key is created, then indexed; with a key, :mod:`bide.providers.s3.keys` says how. Of several that
come together one write is what enqueues them all, the *commit*: of the batch object that holds them whole, of the
item whose ack enqueues them, of the schedule whose instant happens. Before it, keys are taken in their names; after
it, the items are made (the *fan-out*), and then the outbox is cleared. In steps, for a batch:

1. read who has the keys; a conflict ends it here, with nothing changed;
2. take the free ones, marked with the batch (lost one: give back, begin again);
3. **create the batch object** (the commit);
4. create the items, each only where there is none, then their index keys;
5. delete the batch object.

A crash before 3 leaves marked keys, which are free a minute later. A crash after it leaves the batch, which is
finished by whoever meets one of its keys and by the sweep: 4 again. What had been made is there already and is not
changed; only an item that was run and gone before the finishing came is made, and runs, again.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bide.core.abilities import S3, unsupported
from bide.errors import ProviderError
from bide.provider import Enqueued, NewItem
from bide.providers.items import key_of, refuse_surrogates
from bide.providers.s3.bucket import Found
from bide.providers.s3.keys import COMMIT_WITHIN_MS, Free, Holder, Keys, Taken, conflict, made_at
from bide.providers.s3.names import BATCHES, ITEMS, token_of
from bide.providers.s3.records import Outbox, json_of, outbox_json, outbox_of
from bide.providers.s3.store import RACES, Store

Commit = Callable[[Outbox], Awaitable[bool]]
"""The write that enqueues an outbox; False where others were first, so that it is to be begun again."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What would become of items: ``answers`` for all, ``new`` ones, and the free keys of these."""

    answers: list[Enqueued]
    new: list[NewItem]
    free: list[tuple[NewItem, Free]]


class Intake:
    """Enqueues."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.keys = Keys(store, self.finish)

    async def enqueue(self, items: Sequence[NewItem]) -> list[Enqueued]:
        """Store ``items``, all or none. Raises ``KeyConflict`` and ``ProviderError``."""
        refuse(items)
        if len(items) == 1 and items[0].key is None:
            return await self._enqueue_one(items[0])
        for tried in range(RACES):
            plan = await self.plan(items)
            if not plan.new:
                return plan.answers
            if len(plan.new) == 1:
                done = await self._enqueue_by_key(plan)
            else:
                done = await self._enqueue_batch(plan)
            if done is not None:
                return done
            await self._store.step_aside(tried)
        raise ProviderError(f"{self._store.bucket.place}: others kept taking the keys", retryable=True)

    async def plan(self, items: Sequence[NewItem], *, look_up_all: bool = False) -> Plan:
        """What would become of ``items``; changes nothing. Raises ``KeyConflict``.

        Whether an item without a key is known already is left to its creation, unless ``look_up_all``.
        """
        ids: set[str] = set()
        local: dict[tuple[str, str, str], Holder] = {}
        plan = Plan([], [], [])
        seen = await self._looked_up(items, look_up_all)
        for item in items:
            key = key_of(item)
            if item.id in ids or seen.get(item.id) is True:
                plan.answers.append(Enqueued(item.id, new=False))
                continue
            at = None if key is None else local.get(key) or seen[key]
            if isinstance(at, Holder):
                if at.payload != item.payload:
                    raise conflict(item, at.id)
                plan.answers.append(Enqueued(at.id, new=False))
                continue
            ids.add(item.id)
            if key is not None and isinstance(at, Free):
                local[key] = Holder(item.id, item.payload)
                plan.free.append((item, at))
            plan.new.append(item)
            plan.answers.append(Enqueued(item.id, new=True))
        return plan

    async def carried(self, items: Sequence[NewItem], carrier: str, commit: Commit) -> bool:
        """Enqueue ``items`` by the write ``commit`` of ``carrier``, which holds them in its outbox.

        Takes the keys before and makes the items after. False where ``commit`` was overtaken, and nothing is left.
        The outbox is for the caller to clear. Raises ``KeyConflict``; then nothing was changed.
        """
        plan = await self.plan(items)
        now = await self._store.now()
        outbox = Outbox(
            self._store.clock.new_id(), tuple(made_at(item, self._store, now) for item in plan.new)
        )
        taken = await self._take_all(plan, outbox, carrier)
        if taken is None:
            return False
        try:
            is_done = await self._store.now() - now <= COMMIT_WITHIN_MS and await commit(outbox)
        except ProviderError as error:
            if not error.retryable:  # else it may have been done
                await self._give_back(taken)
            raise
        if not is_done:
            await self._give_back(taken)
            return False
        await self._store.make(outbox.items, outbox.mark)
        return True

    async def finish(self, carrier: str, mark: str) -> bool:
        """Make what the carrier holds under ``mark``; False where it holds nothing under it."""
        found = await self._store.bucket.get(carrier)
        if not isinstance(found, Found):
            return False
        head = json_of(found.body, carrier)
        if head.get("outbox") is None or head["outbox"]["mark"] != mark:
            return False
        outbox = outbox_of(head["outbox"])
        await self._store.make(outbox.items, outbox.mark)
        return True

    async def finish_batch(self, key: str) -> bool:
        """Finish an unfinished batch; False where it is gone."""
        found = await self._store.bucket.get(key)
        if not isinstance(found, Found):
            return False
        outbox = outbox_of(json_of(found.body, key)["outbox"])
        await self._store.make(outbox.items, outbox.mark)
        await self._store.bucket.delete([key])
        return True

    async def _enqueue_one(self, item: NewItem) -> list[Enqueued]:
        store = self._store
        (is_new,) = await store.make([made_at(item, store, await store.now())], store.clock.new_id())
        return [Enqueued(item.id, new=is_new)]

    async def _enqueue_by_key(self, plan: Plan) -> list[Enqueued] | None:
        """Of one new item: creating its key is what enqueues it."""
        store, (new,) = self._store, plan.new
        item = made_at(new, store, await store.now())
        mark = store.clock.new_id()
        for _, free in plan.free:
            taken = await self.keys.take(free, item, carrier=None, mark=None)
            if taken is None:
                return None
            mark = taken.entry.nonce
        (is_new,) = await store.make([item], mark)
        return plan.answers if is_new else _not_new(plan.answers, {new.id})

    async def _enqueue_batch(self, plan: Plan) -> list[Enqueued] | None:
        store = self._store
        now = await store.now()
        outbox = Outbox(store.clock.new_id(), tuple(made_at(item, store, now) for item in plan.new))
        key = f"{BATCHES}{outbox.mark}"
        taken = await self._take_all(plan, outbox, key)
        if taken is None:
            return None
        if await store.now() - now > COMMIT_WITHIN_MS:
            await self._give_back(taken)
            return None
        body = json.dumps({"nonce": outbox.mark, "outbox": outbox_json(outbox)}).encode()
        await store.create(key, body, outbox.mark)
        are_new = await store.make(outbox.items, outbox.mark)
        await store.bucket.delete([key])
        known = {item.id for item, is_new in zip(outbox.items, are_new, strict=True) if not is_new}
        return _not_new(plan.answers, known)

    async def _take_all(self, plan: Plan, outbox: Outbox, carrier: str) -> list[Taken] | None:
        """Take the free keys of a plan; none of them where one is lost."""
        by_id = {item.id: item for item in outbox.items}
        taken: list[Taken] = []
        for new, free in plan.free:
            one = await self.keys.take(free, by_id[new.id], carrier=carrier, mark=outbox.mark)
            if one is None:
                await self._give_back(taken)
                return None
            taken.append(one)
        return taken

    async def _give_back(self, taken: Sequence[Taken]) -> None:
        await self._store.each(taken, self.keys.give_back)

    async def _looked_up(self, items: Sequence[NewItem], all_ids: bool) -> dict[object, Holder | Free | bool]:
        """Of each item with a key, or of all: by its id whether that is known; and by each key who has it."""
        keyed = [item for item in items if all_ids or item.key is not None]

        async def is_known(id: str) -> bool:
            return await self._store.bucket.exists(f"{ITEMS}{token_of(id)}")

        ids = list(dict.fromkeys(item.id for item in keyed))
        keys = list(dict.fromkeys(key for item in keyed if (key := key_of(item)) is not None))
        known = await self._store.each(ids, is_known)
        holders = await self._store.each(keys, lambda key: self.keys.look(*key))
        return {**dict(zip(ids, known, strict=True)), **dict(zip(keys, holders, strict=True))}


def refuse(items: Sequence[NewItem]) -> None:
    """Raise for what cannot be kept at all."""
    refuse_surrogates(items)
    if any(item.order_key is not None for item in items):
        raise unsupported(S3, "ordered")


def _not_new(answers: Sequence[Enqueued], known: set[str]) -> list[Enqueued]:
    """``answers``, where these ids were known after all."""
    return [Enqueued(one.id, new=one.new and one.id not in known) for one in answers]
