# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Messages of collectives on the link between cards, and their times by an assumed latency and rate.

An algorithm is a sequence of rounds. In a round each rank sends what it has to send, and the next round begins when all
messages have arrived: a round takes ``latency + busiest / rate``, where ``busiest`` is the number of bytes that the
busiest rank sends or receives. Algorithms are chosen by time. With n ranks, S bytes of each rank, latency a and rate b:

| collective | ring | tree | direct |
|---|---|---|---|
| all_reduce | 2 (n - 1) (a + S / n b) | 2 log2(n) (a + S / b) | a + (n - 1) S / b |
| all_gather_into_tensor | (n - 1) (a + S / b) | log2(n) a + (n - 1) S / b | a + (n - 1) S / b |
| reduce_scatter_tensor | (n - 1) (a + S / n b) | | a + (n - 1) S / n b |
| all_to_all_single | (n - 1) (a + S / n b) | | a + (n - 1) S / n b |
| broadcast | | log2(n) (a + S / b) | a + (n - 1) S / b |

The forms are the usual ones of the alpha-beta model (Thakur, Rabenseifner and Gropp, "Optimization of Collective
Communication Operations in MPICH", 2005). ``direct`` assumes that every card reaches every other card.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass
from spyre_mlir.target.target import LinkRates


class Round(NamedTuple):
    """A round of messages: the bytes of the busiest rank, and the bytes of all ranks together."""

    busiest_bytes: int
    bytes: int


def _ring(rounds: int, part_bytes: Callable[[int, int], int]) -> Callable[[int, int], Iterator[Round]]:
    """Return rounds in which each rank sends a part to its neighbour, ``rounds`` times (n - 1) of them."""

    def messages(ranks: int, size: int) -> Iterator[Round]:
        part = part_bytes(ranks, size)
        yield from [Round(part, ranks * part)] * (rounds * (ranks - 1))

    return messages


def _halves(ranks: int) -> Iterator[int]:
    """Yield the number of senders in each round of a binomial tree that reduces to one rank."""
    while ranks > 1:
        yield ranks // 2
        ranks -= ranks // 2


def _tree_broadcast(ranks: int, size: int) -> Iterator[Round]:
    yield from (Round(size, senders * size) for senders in _halves(ranks))


def _tree_reduce(ranks: int, size: int) -> Iterator[Round]:
    yield from _tree_broadcast(ranks, size)
    yield from _tree_broadcast(ranks, size)


def _doubling(ranks: int, size: int) -> Iterator[Round]:
    """Yield rounds in which ranks exchange all that they have, which doubles."""
    known = 1
    while known < ranks:
        sent = min(known, ranks - known) * size
        yield Round(sent, ranks * sent)
        known *= 2


def _direct(
    part_bytes: Callable[[int, int], int], senders: bool = True
) -> Callable[[int, int], Iterator[Round]]:
    """Return one round in which every rank, or only one rank, sends a part to every other rank."""

    def messages(ranks: int, size: int) -> Iterator[Round]:
        sent = (ranks - 1) * part_bytes(ranks, size)
        yield Round(sent, ranks * sent if senders else sent)

    return messages


def _all(ranks: int, size: int) -> int:
    return size


def _share(ranks: int, size: int) -> int:
    return -(-size // ranks)


#: The rounds of each algorithm of a collective, for a number of ranks and the bytes of the tensor of one rank.
ALGORITHMS: dict[str, dict[str, Callable[[int, int], Iterator[Round]]]] = {
    "all_reduce": {"ring": _ring(2, _share), "tree": _tree_reduce, "direct": _direct(_all)},
    "all_gather_into_tensor": {"ring": _ring(1, _all), "tree": _doubling, "direct": _direct(_all)},
    "reduce_scatter_tensor": {"ring": _ring(1, _share), "direct": _direct(_share)},
    "all_to_all_single": {"ring": _ring(1, _share), "direct": _direct(_share)},
    "broadcast": {"tree": _tree_broadcast, "direct": _direct(_all, senders=False)},
}


@dataclass(frozen=True)
class CollectiveCost:
    """A collective on the link.

    Attributes:
        algorithm: "ring", "tree" or "direct".
        nanoseconds: The time by the assumed rates.
        bytes: The bytes on the link, of all ranks together.
    """

    algorithm: str
    nanoseconds: float
    bytes: int


def collective_cost(operation: str, ranks: int, size: int, rates: LinkRates) -> CollectiveCost:
    """Return the fastest algorithm of a collective, its time and its bytes.

    Args:
        operation: The collective, a key of ``ALGORITHMS``.
        ranks: The number of ranks of its group.
        size: The bytes of the tensor of one rank.
        rates: The assumed rates.

    Raises:
        CompileError: The rates are unknown.
    """
    if rates.sent_bytes_per_ns <= 0:
        raise CompileError(
            "The rates of the link between cards are unknown; give message_ns and sent_bytes_per_ns in the section "
            "[link] of a device file."
        )
    uses = []
    for algorithm, messages in ALGORITHMS[operation].items():
        rounds = list(messages(ranks, size))
        time = math.fsum(rates.message_ns + each.busiest_bytes / rates.sent_bytes_per_ns for each in rounds)
        uses.append(CollectiveCost(algorithm, time, sum(each.bytes for each in rounds)))
    return min(uses, key=lambda use: use.nanoseconds)
