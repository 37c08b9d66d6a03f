"""Checkpoints: bytes -> state dict -> model, and the account of what was done."""

from hookscope.models.checkpoint.account import Account
from hookscope.models.checkpoint.loading import load_checkpoint

__all__ = ["Account", "load_checkpoint"]
