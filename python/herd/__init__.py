"""herd for numpy: collectives among processes, on arrays.

    import herd
    comm = herd.create()                      # from the environment of herd run, torchrun, srun or mpirun
    comm.all_reduce(x)                        # in place; x is any contiguous array
    total = comm.all_reduced(x, op="max")     # as a value
    work = comm.all_reduce(x, async_op=True)  # ... work.wait()

Every rank of a group makes the same calls in the same order; one that does not is named by the error on the others. An
error is a herd.Error, whose `code` is the name of the rule that was broken. The guide is docs/guide/numpy.md.
Threads: any; an operation does not hold the interpreter.
"""

from ._communicator import Communicator, Work, create
from ._errors import AbortedError, BadConfigError, Error, PeerLostError, TimeoutError
from ._tools import explain, plan, verify, version

__all__ = [
    "AbortedError",
    "BadConfigError",
    "Communicator",
    "Error",
    "PeerLostError",
    "TimeoutError",
    "Work",
    "create",
    "explain",
    "plan",
    "verify",
    "version",
]
