"""The provider in a bucket of S3, or of a server that speaks it."""

from bide.providers.s3.provider import S3Provider

__all__ = ["S3Provider"]
