"""SQS as it is asked from one event loop: a client, the queues that are known, and what is under way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import ClientError

from bide.clock import Clock
from bide.core.sqs_address import LONGEST_WAIT_S, SqsAddress
from bide.errors import ProviderError
from bide.providers.sqs.faults import FAULTS, code_of, explained, is_denied, is_missing
from bide.providers.sqs.server_clock import ServerClock
from bide.providers.sqs.traffic import Traffic

CONNECT_S = 5.0
"""Seconds for a connection to be made."""

ANSWER_S = LONGEST_WAIT_S + 10.0
"""Seconds after which a receive that waits has failed, whoever failed it: longer than any waits."""

SHORT_S = 20.0
"""The same for every other request; all attempts of the library together."""

ATTEMPTS = 2
"""How often the library makes a request that failed on the way; whoever asks does the rest."""

CONNECTIONS = 64
CLOSE_S = 5.0
"""Seconds, beyond those that a receive waits, for what is under way to end at a close."""

MOST_BYTES = 1_048_576
"""Of a message and of a batch, where the queue does not say (Amazon SQS quotas, since August 2025)."""

RETENTION_S = 14 * 86_400
"""How long SQS keeps a message at most; queues that bide makes keep them so long."""

ENOUGH_RECEIVES = 5
"""Receives after which a redrive policy never takes what bide does not: three deaths, a wait, and the last look."""

_LOG = logging.getLogger("bide.sqs")


@cache
def _loader() -> Any:
    """What reads the library's descriptions of AWS, and keeps them: a twentieth of a second for each client else."""
    return get_session().get_component("data_loader")


_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Queue:
    """An SQS queue that is there. ``most_bytes``: of a message in it."""

    name: str
    url: str
    most_bytes: int


class Session:
    """A client for the event loop on which it is opened. ``queues`` are those known, by SQS name, to all sessions."""

    def __init__(
        self, address: SqsAddress, clock: Clock, hour: ServerClock, traffic: Traffic, queues: dict[str, Queue]
    ) -> None:
        self.address = address
        self.clock = clock
        self.hour = hour
        self._traffic = traffic
        self._queues = queues
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Make the client; it connects when it is first needed."""
        self.loop = asyncio.get_running_loop()
        config = AioConfig(
            connect_timeout=CONNECT_S,
            read_timeout=ANSWER_S,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            max_pool_connections=CONNECTIONS,
            tcp_keepalive=True,
            parameter_validation=False,
        )
        try:
            library = get_session()
            library.register_component("data_loader", _loader())
            making = library.create_client(
                "sqs", region_name=self.address.region, endpoint_url=self.address.endpoint, config=config
            )
            self._client = await self._stack.enter_async_context(making)
        except FAULTS as error:
            raise explained(error, self.address.place, "connecting") from error
        self._client.meta.events.register("before-send.sqs", self._count)

    async def close(self) -> None:
        """Let what is under way end, receives that wait too; then close the connections."""
        try:
            async with asyncio.timeout(self.address.wait_s + CLOSE_S):
                while self._tasks:
                    await asyncio.wait(set(self._tasks))
        except TimeoutError:
            pass
        finally:
            await self._cut()

    async def _cut(self) -> None:
        """Break off what is under way still, and close the connections."""
        left = set(self._tasks)
        for task in left:
            task.cancel()
        try:
            if left:
                await asyncio.wait(left, timeout=CLOSE_S)
        finally:
            await self._stack.aclose()

    def start(self, act: Coroutine[Any, Any, _R]) -> asyncio.Task[_R]:
        """Run ``act`` whoever waits for it; closing waits. To be called on the session's event loop."""
        task = self.loop.create_task(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def call(self, operation: str, *, waits: bool = False, **fields: Any) -> dict[str, Any]:
        """What SQS answers (``"send_message_batch"``). Raises ``ProviderError``."""
        try:
            return await self._call(operation, waits=waits, **fields)
        except FAULTS as error:
            place = self._place_of(fields)
            if is_missing(error):
                self._queues.clear()
                if self.address.create:
                    raise ProviderError(
                        f"{place}: the queue is gone; it is made anew when it is asked for again ({operation}: "
                        f"{code_of(error)})",
                        retryable=True,
                    ) from error
            raise explained(error, place, operation) from error

    async def refusal(self, operation: str, **fields: Any) -> str:
        """The code that SQS refuses a request with; empty where it does not. Raises ``ProviderError`` for trouble."""
        try:
            await self._call(operation, **fields)
        except FAULTS as error:
            if code := code_of(error):
                return code
            raise explained(error, self._place_of(fields), operation) from error
        return ""

    async def queue(self, name: str) -> Queue:
        """The SQS queue of that name, made where it is missing and the address says so. Raises ``ProviderError``."""
        known = self._queues.get(name)
        if known is None:
            known = self._queues[name] = await self._found(name)
        return known

    async def has_queue(self, name: str) -> bool:
        """Whether there is such a queue; none is made."""
        try:
            await self._call("get_queue_url", QueueName=name)
        except FAULTS as error:
            if is_missing(error):
                return False
            raise explained(error, self._place(name), "get_queue_url") from error
        return True

    async def attributes(self, url: str, *names: str) -> dict[str, str]:
        """Attributes of a queue. Raises ``ProviderError``."""
        answer = await self.call("get_queue_attributes", QueueUrl=url, AttributeNames=list(names))
        return dict(answer.get("Attributes", {}))

    async def now_ms(self) -> int:
        """The time at SQS. Raises ``ProviderError`` where it was never asked and cannot be."""
        if not self.hour.is_known:
            await self.has_queue(self.address.prefix)
        if not self.hour.is_known:
            raise ProviderError(
                f"{self.address.place}: its answers have no Date, so what time it is there is not known; "
                "check endpoint in the address, and what stands before it"
            )
        return self.hour.now_ms(self.clock.monotonic())

    async def _found(self, name: str) -> Queue:
        try:
            url = (await self._call("get_queue_url", QueueName=name))["QueueUrl"]
        except FAULTS as error:
            if not (self.address.create and is_missing(error)):
                raise explained(error, self._place(name), "get_queue_url") from error
            made = await self.call(
                "create_queue", QueueName=name, Attributes={"MessageRetentionPeriod": str(RETENTION_S)}
            )
            return Queue(name, made["QueueUrl"], MOST_BYTES)
        try:
            answer = await self._call(
                "get_queue_attributes", QueueUrl=url, AttributeNames=["MaximumMessageSize", "RedrivePolicy"]
            )
        except FAULTS as error:
            if not is_denied(error):
                raise explained(error, self._place(name), "get_queue_attributes") from error
            return Queue(name, url, MOST_BYTES)
        attributes = answer.get("Attributes", {})
        if "RedrivePolicy" in attributes and not name.endswith("-dead"):
            _LOG.warning(
                "the queue %s has a redrive policy: what it moves is lost to bide, which buries by itself; remove "
                "it, or set maxReceiveCount to %d or more",
                name,
                ENOUGH_RECEIVES,
            )
        return Queue(name, url, int(attributes.get("MaximumMessageSize", MOST_BYTES)))

    async def _call(self, operation: str, *, waits: bool = False, **fields: Any) -> dict[str, Any]:
        if self._client is None:
            raise ProviderError(f"{self.address.place}: the provider is not open")
        with self._traffic.under_way(waits=waits):
            sent_s = self.clock.monotonic()
            try:
                async with asyncio.timeout(ANSWER_S if waits else SHORT_S):
                    answer: dict[str, Any] = await getattr(self._client, operation)(**fields)
            except ClientError as error:  # a refusal says what time it is as well
                self._hear(error.response, sent_s)
                raise
            self._hear(answer, sent_s)
        return answer

    def _hear(self, answer: Mapping[str, Any], sent_s: float) -> None:
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        self.hour.heard(headers, sent_s, self.clock.monotonic())

    def _count(self, event_name: str, **_: Any) -> None:
        self._traffic.sent(event_name.rpartition(".")[2])

    def _place_of(self, fields: dict[str, Any]) -> str:
        name = fields.get("QueueName") or str(fields.get("QueueUrl", "")).rpartition("/")[2]
        return self._place(name) if name else self.address.place

    def _place(self, name: str) -> str:
        """Where a queue is, for people."""
        where = [self.address.region or getattr(getattr(self._client, "meta", None), "region_name", None)]
        where.append(self.address.endpoint)
        return f"sqs://{name} ({', '.join(part for part in where if part)})"
