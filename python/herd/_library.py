"""Loads the library and declares its functions, which python/src/c_interface.cpp defines."""

import ctypes
import pathlib
from ctypes import POINTER, c_char_p, c_double, c_int, c_int32, c_int64, c_uint64, c_void_p

from ._errors import error_of


class Buffer(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("elements", c_int64), ("dtype", c_char_p)]


class Options(ctypes.Structure):
    _fields_ = [
        ("op", c_char_p),
        ("name", c_char_p),
        ("algorithm", c_char_p),
        ("counts", POINTER(c_int64)),
        ("num_counts", c_int64),
        ("segment_bytes", c_int64),
        ("deadline_s", c_double),
        ("factor", c_double),
    ]


_SIGNATURES = {  # result, then arguments; c_int results of the functions in CHECKED are errors
    "herd_error": (c_char_p,),
    "herd_code_name": (c_char_p, c_int),
    "herd_version": (c_char_p,),
    "herd_create": (c_int, c_char_p, c_int, c_int, c_double, POINTER(c_void_p)),
    "herd_free": (None, c_void_p),
    "herd_rank": (c_int, c_void_p),
    "herd_size": (c_int, c_void_p),
    "herd_bytes_moved": (c_uint64, c_void_p),
    "herd_set_deadline": (c_int, c_void_p, c_double),
    "herd_abort": (c_int, c_void_p, c_char_p),
    "herd_show_activity": (c_int, c_void_p, c_char_p),
    "herd_split": (c_int, c_void_p, c_int, c_int, c_char_p, POINTER(c_void_p)),
    "herd_group": (c_int, c_void_p, POINTER(c_int32), c_int64, c_char_p, POINTER(c_void_p)),
    "herd_shrink": (c_int, c_void_p, POINTER(c_void_p)),
    "herd_operate": (
        c_int, c_void_p, c_char_p, POINTER(Buffer), POINTER(Buffer), c_int, c_int, POINTER(Options),
        POINTER(c_void_p), POINTER(c_int),
    ),
    "herd_wait": (c_int, c_void_p, POINTER(c_int)),
    "herd_done": (c_int, c_void_p),
    "herd_work_free": (None, c_void_p),
    "herd_allocate": (c_int, c_void_p, c_int64, POINTER(c_void_p), POINTER(c_void_p)),
    "herd_memory_free": (None, c_void_p),
    "herd_verify": (c_int, c_char_p, POINTER(c_void_p)),
    "herd_text": (c_char_p, c_void_p),
    "herd_text_free": (None, c_void_p),
}  # fmt: skip
_UNCHECKED = {"herd_rank", "herd_size", "herd_done"}


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(str(pathlib.Path(__file__).parent / "_herd.so"))
    for name, (result, *arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
        if result is c_int and name not in _UNCHECKED:
            function.errcheck = _check
    return library


def _check(result, function, arguments):
    if result:
        raise error_of(library.herd_code_name(result).decode(), library.herd_error().decode(errors="replace"))
    return result


library = _load()
