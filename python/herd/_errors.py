"""The library's functions report errors by number and text; here they become exceptions."""


class Error(RuntimeError):
    """What herd throws. `code` is the name of the kind, such as "kTimeout"; the text says what happened, the rule with
    its values and, where there is one, the fix."""

    def __init__(self, code: str, text: str):
        super().__init__(text)
        self.code = code


class BadConfigError(Error, ValueError):
    """A value breaks a rule: a shape, a dtype, a rank, an environment that contradicts itself (kBadConfig)."""


class TimeoutError(Error, TimeoutError):
    """Somebody did not come within the deadline, and is named (kTimeout)."""


class PeerLostError(Error, ConnectionError):
    """A rank has died, or its host is gone (kPeerLost). The survivors may go on with Communicator.shrink()."""


class AbortedError(Error):
    """Somebody called abort(), with this reason (kAborted)."""


_CLASSES = {
    "kBadConfig": BadConfigError,
    "kTimeout": TimeoutError,
    "kPeerLost": PeerLostError,
    "kAborted": AbortedError,
}


def error_of(code: str, text: str) -> Error:
    return _CLASSES.get(code, Error)(code, text)
