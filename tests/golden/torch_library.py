"""PyTorch, loaded by the first computation."""

import importlib


class _Library:
    def __init__(self, name):
        self.name = name

    def __getattr__(self, function):
        return getattr(importlib.import_module(self.name), function)


torch, F = _Library("torch"), _Library("torch.nn.functional")
