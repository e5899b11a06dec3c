"""DLPack producers that say whatever a test wants: odd pointers, dtypes, devices and versions.

Real libraries refuse to make most of these, so the structures are filled in by ctypes. Every
producer counts how often its memory was given back, to find leaks and double frees.
"""

from __future__ import annotations

import ctypes
import sys
import types

import numpy as np

INT, UINT, FLOAT, OPAQUE, BFLOAT, COMPLEX, BOOL = range(7)
CPU, CUDA = 1, 2
READ_ONLY = 1

_KIND_TO_CODE = {"i": INT, "u": UINT, "f": FLOAT, "c": COMPLEX, "b": BOOL}


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("manager", ctypes.c_void_p), ("deleter", _Deleter)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype = ctypes.c_int
_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]

_NAMES = {False: b"dltensor", True: b"dltensor_versioned"}


class Producer:
    """An object that knows DLPack and nothing else. Keywords replace what `array` would say."""

    def __init__(
        self,
        array: np.ndarray,
        *,
        data: int | None = None,
        shape: tuple | None = None,
        strides: tuple | None = None,
        dtype: tuple | None = None,
        device: tuple = (CPU, 0),
        versioned: bool = False,
        version: tuple = (1, 0),
        flags: int = 0,
        deleter: bool = True,
    ) -> None:
        self.array = array  # keeps the memory alive
        self.data = array.ctypes.data if data is None else data
        self.shape = array.shape if shape is None else shape
        item = array.dtype.itemsize
        self.strides = tuple(s // item for s in array.strides) if strides is None else strides
        code = _KIND_TO_CODE[array.dtype.kind]
        self.dtype = (code, item * 8, 1) if dtype is None else dtype
        self.device = device
        self.versioned, self.version, self.flags = versioned, version, flags
        self.has_deleter = deleter  # the standard allows a null pointer: nothing to give back
        self.exported: list = []  # (capsule, structure, arrays behind its pointers)
        self.deleted = 0

    def __dlpack_device__(self) -> tuple:
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        rank = len(self.shape)
        shape = (ctypes.c_int64 * max(rank, 1))(*self.shape)
        strides = (ctypes.c_int64 * max(rank, 1))(*self.strides)
        tensor = _Tensor(
            ctypes.c_void_p(self.data),
            _Device(*self.device),
            rank,
            _DType(*self.dtype),
            ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
            ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64)),
            0,
        )
        versioned = self.versioned and max_version is not None
        deleter = _Deleter(self._delete) if self.has_deleter else _Deleter()
        if versioned:
            managed = _Versioned(*self.version, None, deleter, self.flags, tensor)
        else:
            managed = _Managed(tensor, None, deleter)
        capsule = _new_capsule(ctypes.addressof(managed), _NAMES[versioned], None)
        self.exported.append((capsule, managed, shape, strides, deleter, versioned))
        return capsule

    def _delete(self, _managed) -> None:
        self.deleted += 1

    def assert_nothing_leaked(self) -> None:
        """Each capsule that was taken was given back once; the others are still ours."""
        taken = sum(not _is_valid(entry[0], _NAMES[entry[5]]) for entry in self.exported)
        taken *= self.has_deleter
        assert self.deleted == taken, f"{taken} capsules taken, {self.deleted} given back"


def pose_as_cupy(array: type, empty) -> None:
    """The binding knows CuPy's arrays by their module, and asks the module for streams and memory."""
    array.__module__ = "cupy"
    module = types.ModuleType("cupy")
    module.cuda = types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=0))
    module.empty = empty
    sys.modules["cupy"] = module
