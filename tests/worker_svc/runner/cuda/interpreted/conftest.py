"""Tests of Triton's kernels in its interpreter, which has to be chosen before Triton is imported.

`test_triton_interpreted.py` runs them in a process of their own; in any other process they are not collected.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
collect_ignore_glob = [] if IS_INTERPRETED else ["test_*.py"]


def keep_rows_apart() -> None:
    """On a GPU no row of a product depends on the others of its tile. The interpreter asks the BLAS of this machine,
    which on some CPUs adds up the last rows of a matrix in another order."""
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle  # noqa: PLC0415

    through_blas = InterpreterBuilder.create_dot

    def create_dot(self: Any, a: Any, b: Any, d: Any, *options: Any) -> Any:
        if {tile.data.dtype for tile in (a, b, d)} != {np.dtype(np.float32)}:
            return through_blas(self, a, b, d, *options)
        return TensorHandle(np.einsum("ik,kj->ij", a.data, b.data) + d.data, d.dtype.scalar)

    InterpreterBuilder.create_dot = create_dot


def look_up_types_once() -> None:
    """The interpreter makes its table of 20 types anew each time that it looks one up, for each operation."""
    from triton import language  # noqa: PLC0415
    from triton.runtime import interpreter  # noqa: PLC0415

    look_up, known = interpreter._get_np_dtype, {}

    def get(kind: Any) -> Any:
        scalar = kind.element_ty if isinstance(kind, language.block_type) else kind
        if isinstance(scalar, language.pointer_type):
            return look_up(scalar)
        if scalar.name not in known:
            known[scalar.name] = look_up(scalar)
        return known[scalar.name]

    interpreter._get_np_dtype = get


def make_shapes_once() -> None:
    """The interpreter makes the shape of a block anew, with a type for each of its numbers, for each operation."""
    from triton import language  # noqa: PLC0415

    make_block, block_shapes = language.block_type.__init__, {}
    make_tensor, tensor_shapes = language.tensor.__init__, {}

    def block(self: Any, element_ty: Any, shape: Any) -> None:
        key = tuple(getattr(size, "value", size) for size in shape)
        if key not in block_shapes:
            make_block(self, element_ty, shape)
            block_shapes[key] = self.shape, self.numel, str(self.shape)
            return
        self.element_ty = element_ty
        self.shape, self.numel, name = block_shapes[key]
        self.name = f"<{name}, {element_ty}>"

    def tensor(self: Any, handle: Any, type: Any) -> None:
        key = tuple(type.shape) if type.is_block() else ()
        if key not in tensor_shapes:
            make_tensor(self, handle, type)
            tensor_shapes[key] = self.shape, self.numel
            return
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = tensor_shapes[key]

    language.block_type.__init__, language.tensor.__init__ = block, tensor


def patch_once_a_launch() -> None:
    """The interpreter gives the language's functions its own meaning when a kernel is launched, and again at each call
    of a function inside it: that is needed only for a module of the language that the launch has not patched yet."""
    from triton import language  # noqa: PLC0415
    from triton.runtime import interpreter  # noqa: PLC0415

    patch, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    modules_of: dict[Any, frozenset[str]] = {}
    patched: set[str] = set()

    def patch_lang(function: Any) -> Any:
        if function not in modules_of:
            named = function.__globals__.values()
            modules_of[function] = frozenset(
                module.__name__
                for module in (language, language.core)
                if any(each is module for each in named)
            )
        if modules_of[function] and modules_of[function] <= patched:
            return interpreter._LangPatchScope()
        patched.update(modules_of[function])
        return patch(function)

    def call(self: Any, *arguments: Any, **named: Any) -> None:
        patched.clear()
        try:
            launch(self, *arguments, **named)
        finally:
            patched.clear()

    interpreter._patch_lang, interpreter.GridExecutor.__call__ = patch_lang, call


if IS_INTERPRETED:
    keep_rows_apart()
    look_up_types_once()
    make_shapes_once()
    patch_once_a_launch()
