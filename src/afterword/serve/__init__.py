"""Serve an encoder over HTTP, with the interface of OpenAI's embeddings."""

from ..errors import MissingExtra

try:
    import starlette  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as e:
    raise MissingExtra(str(e.name), "serve") from None

from .routes import app

__all__ = ["app"]
