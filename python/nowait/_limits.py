"""Limits of the requests in flight, and their current number."""

from __future__ import annotations

from types import EllipsisType
from typing import NamedTuple

from . import _nowait

# The number that the engine takes for no limit.
NONE = (1 << 64) - 1


class Limits(NamedTuple):
    """Limits of requests and bytes in flight; ``None``: no limit."""

    requests: int | None
    """Requests of the process."""
    bytes: int | None
    """Bytes that requests of the process read and write. A larger request starts only when its loop
    has no other request in flight."""
    loop_requests: int | None
    """Requests of each event loop; never more than 4,096."""
    loop_bytes: int | None
    """Bytes that requests of each event loop read and write."""


class InFlight(NamedTuple):
    """The requests and bytes of an event loop in flight, and its waiting requests."""

    requests: int
    bytes: int
    """Bytes that the requests in flight read and write."""
    waiting: int
    """Requests that wait for their turn."""


def limits(
    *,
    requests: int | None | EllipsisType = ...,
    bytes: int | None | EllipsisType = ...,
    loop_requests: int | None | EllipsisType = ...,
    loop_bytes: int | None | EllipsisType = ...,
) -> Limits:
    """Change the limits that are given, and return all limits that apply then.

    A request beyond a limit waits behind the earlier requests of its loop; a waiting `read_at` has
    no memory yet. Cancelling a waiting request takes it out of the line. A loop may always have one
    request in flight.
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
    """Return the requests in flight of this thread's event loop."""
    return InFlight(*_nowait.in_flight())
