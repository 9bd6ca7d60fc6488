"""How much may be in flight, and how much is."""

from __future__ import annotations

from types import EllipsisType
from typing import NamedTuple

from . import _nowait

# What the engine takes for no limit.
NONE = (1 << 64) - 1


class Limits(NamedTuple):
    """What may be in flight at a time; ``None``: no limit. What is more waits for its turn."""

    requests: int | None
    """Requests of the process."""
    bytes: int | None
    """What they read and write, of the process. The largest request passes when it is alone."""
    loop_requests: int | None
    """Requests of each event loop; never more than 4,096."""
    loop_bytes: int | None
    """What they read and write, of each event loop."""


class InFlight(NamedTuple):
    """What of an event loop is in flight."""

    requests: int
    bytes: int
    """What they read and write."""
    waiting: int
    """Requests that wait for their turn."""


def limits(
    *,
    requests: int | None | EllipsisType = ...,
    bytes: int | None | EllipsisType = ...,
    loop_requests: int | None | EllipsisType = ...,
    loop_bytes: int | None | EllipsisType = ...,
) -> Limits:
    """Change what may be in flight, as far as it is named, and return what holds then.

    A request beyond a limit is not refused: it waits, behind those of its loop that came before,
    and takes no memory for what it reads. To cancel it takes it out of the line. A loop may always
    have one request in flight, whatever the others have.
    """
    named = (requests, bytes, loop_requests, loop_bytes)
    if named != (...,) * 4:
        before = _nowait.limits()
        first, second, third, fourth = map(_number, named, before)
        _nowait.set_limits((first, second, third, fourth))
    return Limits(*(None if number == NONE else number for number in _nowait.limits()))


def _number(value: int | None | EllipsisType, before: int) -> int:
    if value is None:
        return NONE
    if isinstance(value, EllipsisType):
        return before
    if value < 1:
        raise ValueError("a limit is at least 1")
    return value


def in_flight() -> InFlight:
    """Return what the event loop of this thread has in flight."""
    return InFlight(*_nowait.in_flight())
