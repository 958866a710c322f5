"""Communicator and Work: the operations among ranks, on numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._errors import BadConfigError
from ._library import Buffer, Options, library

Array = np.ndarray
_DTYPES = {
    "float32": b"fp32",
    "float64": b"fp64",
    "float16": b"fp16",
    "bfloat16": b"bf16",  # of ml_dtypes
    "bool": b"bool",
    "int8": b"int8",
    "int16": b"int16",
    "int32": b"int32",
    "int64": b"int64",
    "uint8": b"uint8",
    "uint16": b"uint16",
    "uint32": b"uint32",
    "uint64": b"uint64",
}


def _buffer(x: Array, written: bool) -> Buffer:
    if not isinstance(x, np.ndarray):
        raise BadConfigError("kBadConfig", f"an operation takes numpy arrays, not {type(x).__name__}\n  fix: numpy.asarray(x)")
    dtype = _DTYPES.get(x.dtype.name)
    if dtype is None or not x.dtype.isnative:
        raise BadConfigError(
            "kBadConfig", f"arrays of dtype {x.dtype} can't take part in collectives; {', '.join(_DTYPES)} can, in the "
            "machine's byte order\n  fix: x.astype(...), or x.view(...) where the bytes are only moved"
        )  # fmt: skip
    if not x.flags.c_contiguous:
        raise BadConfigError(
            "kBadConfig", f"an operation needs one dense piece of memory in row-major order; this array has shape "
            f"{x.shape} and strides {x.strides}\n  fix: numpy.ascontiguousarray(x), and copy the result back"
        )  # fmt: skip
    if written and not x.flags.writeable:
        raise BadConfigError("kBadConfig", "the operation writes to this array, which is read-only\n  fix: x.copy()")
    return Buffer(x.ctypes.data if x.size else None, x.size, dtype)


class Work:
    """An operation in flight. The arrays that it uses must not be touched before wait() returns."""

    def __init__(self, handle: int, keep: tuple[Any, ...]):
        self._handle = ctypes.c_void_p(handle)
        self._keep = keep
        self._source = ctypes.c_int(-1)

    def wait(self) -> int:
        """Returns when the operation is done, or raises its error. The result is the rank that a receive got its
        message from, and means nothing for other operations."""
        library.herd_wait(self._handle, ctypes.byref(self._source))
        self._keep = ()
        return self._source.value

    def done(self) -> bool:
        """Tells whether the operation is done or has failed; never waits."""
        return bool(library.herd_done(self._handle))

    def __del__(self):
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            if self._keep:
                try:  # its arrays would go while the operation runs
                    library.herd_wait(handle, ctypes.byref(self._source))
                except Exception:  # noqa: BLE001, S110: nobody asked for the error
                    pass
            library.herd_work_free(handle)


class Communicator:
    """A group of ranks. Made by create(), split() and group()."""

    def __init__(self, handle: int):
        self._handle = ctypes.c_void_p(handle)

    def __del__(self):
        self.close()

    def close(self) -> None:
        """Leaves the group. Later calls raise; arrays of symmetric() stay as they are."""
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            library.herd_free(handle)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _open(self) -> ctypes.c_void_p:
        if not self._handle:
            raise BadConfigError("kBadConfig", "this communicator was closed")
        return self._handle

    @property
    def rank(self) -> int:
        """This process's rank in the group, from 0; -1 where it is no member."""
        return library.herd_rank(self._open())

    @property
    def size(self) -> int:
        """The number of ranks of the group."""
        return library.herd_size(self._open())

    @property
    def bytes_moved(self) -> int:
        """Bytes that this rank has moved in all groups of its world."""
        return library.herd_bytes_moved(self._open())

    def _operate(self, what, reads=None, writes=None, *, inout=None, peer=-1, tag=0, op=None, name=None, algorithm=None,
                 counts=None, segment_bytes=0, deadline=0.0, factor=1.0, async_op=False):  # fmt: skip
        numbers = None if counts is None else np.ascontiguousarray(counts, dtype=np.int64).ravel()
        options = Options(
            op=op and op.encode(),
            name=name and name.encode(),
            algorithm=algorithm and algorithm.encode(),
            counts=None if numbers is None else numbers.ctypes.data_as(ctypes.POINTER(ctypes.c_int64)),
            num_counts=0 if numbers is None else numbers.size,
            segment_bytes=segment_bytes,
            deadline_s=deadline,
            factor=factor,
        )
        first = _buffer(inout, True) if inout is not None else None if reads is None else _buffer(reads, False)
        second = None if writes is None else _buffer(writes, True)
        source, work = ctypes.c_int(-1), ctypes.c_void_p()
        library.herd_operate(
            self._open(), what.encode(), first and ctypes.byref(first), second and ctypes.byref(second), peer, tag,
            ctypes.byref(options), ctypes.byref(work) if async_op else None, ctypes.byref(source),
        )  # fmt: skip
        return Work(work.value, (self, reads, writes, inout, numbers)) if async_op else source.value

    def all_reduce(self, x: Array, op: str = "sum", *, async_op: bool = False, **options) -> Work | None:
        """x becomes the sum (or `op`: product, min, max, average, and, or, xor, premultiplied_sum) over the ranks.

        Every operation takes async_op=True, and then returns a Work; and the options name (in reports), deadline
        (seconds), algorithm (of `herd explain`) and segment_bytes."""
        return self._done(self._operate("all_reduce", inout=x, op=op, async_op=async_op, **options), async_op)

    def broadcast(self, x: Array, root: int = 0, *, async_op: bool = False, **options) -> Work | None:
        """x becomes that of `root`."""
        return self._done(self._operate("broadcast", inout=x, peer=root, async_op=async_op, **options), async_op)

    def reduce(self, x: Array, root: int = 0, op: str = "sum", *, async_op: bool = False, **options) -> Work | None:
        """At `root` x becomes the sum over the ranks; elsewhere it stays as it was."""
        return self._done(self._operate("reduce", inout=x, peer=root, op=op, async_op=async_op, **options), async_op)

    def all_gather(self, x: Array, out: Array, *, counts: Sequence[int] | None = None, async_op: bool = False,
                   **options) -> Work | None:  # fmt: skip
        """`out` gets the parts of all ranks, in rank order; counts[r] elements of rank r where they are uneven."""
        return self._done(self._operate("all_gather", x, out, counts=counts, async_op=async_op, **options), async_op)

    def reduce_scatter(self, x: Array, out: Array, op: str = "sum", *, counts: Sequence[int] | None = None,
                       async_op: bool = False, **options) -> Work | None:  # fmt: skip
        """`out` gets this rank's part of the sum."""
        return self._done(
            self._operate("reduce_scatter", x, out, op=op, counts=counts, async_op=async_op, **options), async_op
        )

    def gather(self, x: Array, out: Array | None = None, root: int = 0, *, counts: Sequence[int] | None = None,
               async_op: bool = False, **options) -> Work | None:  # fmt: skip
        """At `root`, `out` gets the parts of all ranks; elsewhere it may be None."""
        return self._done(
            self._operate("gather", x, out, peer=root, counts=counts, async_op=async_op, **options), async_op
        )

    def scatter(self, x: Array | None, out: Array, root: int = 0, *, counts: Sequence[int] | None = None,
                async_op: bool = False, **options) -> Work | None:  # fmt: skip
        """`out` gets this rank's part of `x` of `root`; elsewhere x may be None."""
        return self._done(
            self._operate("scatter", x, out, peer=root, counts=counts, async_op=async_op, **options), async_op
        )

    def all_to_all(self, x: Array, out: Array, *, counts: Sequence[Sequence[int]] | None = None, async_op: bool = False,
                   **options) -> Work | None:  # fmt: skip
        """Every rank gives a part to each rank and gets one from each; counts[f][t] elements go from rank f to t."""
        return self._done(self._operate("all_to_all", x, out, counts=counts, async_op=async_op, **options), async_op)

    def barrier(self, **options) -> None:
        """Returns when every rank has called it. It has no asynchronous form."""
        if options.pop("async_op", False):
            raise ValueError("barrier has no asynchronous form\n  fix: leave async_op out")
        self._operate("barrier", **options)

    def send(self, x: Array, to: int, tag: int = 0, *, async_op: bool = False, **options) -> Work | None:
        """Sends x to one rank. Messages of one tag arrive in order."""
        return self._done(self._operate("send", x, peer=to, tag=tag, async_op=async_op, **options), async_op)

    def receive(self, x: Array, source: int | None = None, tag: int = 0, *, async_op: bool = False,
                **options) -> Work | int:  # fmt: skip
        """Fills x with a message of rank `source`, or of whoever sends first, and returns the sender's rank."""
        return self._operate(
            "receive", inout=x, peer=-1 if source is None else source, tag=tag, async_op=async_op, **options
        )

    def all_reduced(self, x: Array, op: str = "sum", **options) -> Array:
        """Returns the sum over the ranks; x stays as it is."""
        result = np.array(x, order="C", copy=True)
        self.all_reduce(result, op, **options)
        return result

    def all_gathered(self, x: Array, **options) -> Array:
        """Returns the arrays of all ranks, one after the other along the first axis. They may differ in its length,
        which then costs one small exchange more: pass counts (of elements) where all ranks know them."""
        x = np.ascontiguousarray(x)
        rows = np.zeros(self.size, np.int64)
        if "counts" not in options:
            self.all_gather(np.array([x.size], np.int64), rows)
            options["counts"] = rows
        total = int(np.sum(options["counts"]))
        row = max(int(np.prod(x.shape[1:])), 1)
        result = np.empty((total // row, *x.shape[1:]), x.dtype)
        self.all_gather(x, result, **options)
        return result

    def reduce_scattered(self, x: Array, op: str = "sum", **options) -> Array:
        """Returns this rank's part of the sum, cut along the first axis, which the ranks must divide."""
        x = np.ascontiguousarray(x)
        if x.ndim == 0 or x.shape[0] % self.size:
            raise BadConfigError(
                "kBadConfig", f"{self.size} ranks can't cut an array of shape {x.shape} into equal parts along its first "
                "axis\n  fix: reduce_scatter(x, out, counts=...)"
            )  # fmt: skip
        result = np.empty((x.shape[0] // self.size, *x.shape[1:]), x.dtype)
        self.reduce_scatter(x, result, op, **options)
        return result

    def split(self, color: int, key: int | None = None, name: str = "group") -> Communicator:
        """Makes groups of the ranks of one color >= 0, in the order of (key, rank). Collective over this group; a rank
        with color < 0 gets a group of size 0."""
        made = ctypes.c_void_p()
        order = self.rank if key is None else key
        library.herd_split(self._open(), color, order, name.encode(), ctypes.byref(made))
        return Communicator(made.value)

    def group(self, members: Sequence[int], name: str = "group") -> Communicator:
        """Makes a group of these ranks, in this order. Collective over the members alone."""
        made, ranks = ctypes.c_void_p(), (ctypes.c_int32 * len(members))(*members)
        library.herd_group(self._open(), ranks, len(members), name.encode(), ctypes.byref(made))
        return Communicator(made.value)

    def shrink(self) -> Communicator:
        """Makes a group of the members that are alive, after a PeerLostError. Collective over them."""
        made = ctypes.c_void_p()
        library.herd_shrink(self._open(), ctypes.byref(made))
        return Communicator(made.value)

    def symmetric(self, shape: int | Sequence[int], dtype: Any = np.float32) -> Array:
        """Returns an array of zeros on pages that the ranks of a host share: collectives on it copy nothing extra.
        Collective; the same number of bytes on every rank. The last reference to the array frees it."""
        dtype = np.dtype(dtype)
        count = int(np.prod(shape))
        memory, data = ctypes.c_void_p(), ctypes.c_void_p()
        library.herd_allocate(self._open(), count * dtype.itemsize, ctypes.byref(memory), ctypes.byref(data))
        pages = _Pages(memory.value, data.value, count * dtype.itemsize)
        return np.asarray(pages).view(dtype)[:count].reshape(shape) if count else np.empty(shape, dtype)

    def set_deadline(self, seconds: float) -> None:
        """Sets the deadline of later operations; it is 60 s at first."""
        library.herd_set_deadline(self._open(), seconds)

    def abort(self, reason: str) -> None:
        """Fails every operation of the world, on all ranks, with this reason."""
        library.herd_abort(self._open(), reason.encode())

    def show_activity(self, activity: str) -> None:
        """Tells what this rank does; reports of failures quote it."""
        library.herd_show_activity(self._open(), activity.encode())

    @staticmethod
    def _done(result, async_op):
        return result if async_op else None


class _Pages:
    """Memory that numpy wraps, and that is released with the last array on it."""

    def __init__(self, memory: int, data: int, size: int):
        self._memory = memory
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (data or 0, False)}

    def __del__(self):
        library.herd_memory_free(self._memory)


def create(init_method: str | None = None, rank: int = 0, world_size: int = 1, deadline: float = 60.0) -> Communicator:
    """Makes the world: from the launcher's environment, a rank alone where there is none; or of ranks that the program
    numbers itself, which meet at "tcp://HOST:PORT". Collective."""
    made = ctypes.c_void_p()
    library.herd_create(init_method and init_method.encode(), rank, world_size, deadline, ctypes.byref(made))
    return Communicator(made.value)
