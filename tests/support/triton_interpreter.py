"""Triton's interpreter with NumPy 2.4: bounds of `range` that a kernel has loaded or computed."""

from __future__ import annotations

from typing import Any

from triton.runtime import interpreter


def accept_scalar_arrays() -> None:
    """The interpreter keeps a kernel's scalars as arrays of one element and makes ints of them by
    `int(array)`, which NumPy refuses from 2.4 on: `range(0, n)` fails. This takes `item()`."""
    patch_tensor = interpreter._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    if not getattr(interpreter, "_accepts_scalar_arrays", False):
        interpreter._patch_lang_tensor = patch
        interpreter._accepts_scalar_arrays = True
