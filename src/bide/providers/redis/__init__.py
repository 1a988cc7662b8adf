"""The provider on Redis or Valkey; it needs ``pip install 'bide[redis]'``."""

from bide.providers.redis.provider import RedisProvider

__all__ = ["RedisProvider"]
