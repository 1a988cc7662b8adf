"""Amazon SQS, for work alone: queues that somebody else keeps running. Needs ``bide[sqs]``."""

from bide.providers.sqs.provider import SqsProvider

__all__ = ["SqsProvider"]
