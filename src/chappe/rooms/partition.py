"""Where a room is: every formula of rooms, in one place.

| question                              | answer                                      |
|---------------------------------------|---------------------------------------------|
| a room's number (R3)                  | its name, if decimal, else a stable hash    |
| its partition, of P                   | room % P                                    |
| its replica, of the N that run        | (room // P) % N, in order of registry ids   |
| what a broker of partition p keeps    | room % K == p % K, K <= P its own modulus   |
| its router, of M (R11)                | room % M, in order of registry ids          |
| its router partitions, of R (R12)     | all q with room % R == q % R                |
| its router there, of N that run       | room % N, in order of registry ids          |
| router partitions of broker b of B    | all r < R with r == b modulo min(B, R)      |
| that broker's replica there, of N     | its own registry id % N                     |

Partitions are powers of two, so a partition's rooms are those of two partitions after a doubling:
its own number, and that number plus P.
"""

from __future__ import annotations

from hashlib import blake2b

# What fits into 64 bits whatever its digits: longer names are hashed.
_DIGITS_MAX = 18
PARTITIONS_MAX = 1024


def room_number(name: str) -> int:
    """The number of a room: the name itself if it is a decimal number, else a stable hash.

    `7` is 7; `007` is another room with another name, and hashed.
    """
    if (
        len(name) <= _DIGITS_MAX
        and name.isascii()
        and name.isdigit()
        and (name[0] != "0" or name == "0")
    ):
        return int(name)
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") >> 1


def partition_of(room: int, partitions: int) -> int:
    """The partition of a room."""
    return room % partitions


def replica_of(room: int, partitions: int, running: int) -> int:
    """Which of the running replicas of its partition a room's messages go to.

    Not room % running: where both numbers are powers of two, that is the same for all rooms of a
    partition, and of 4 x 4 replicas 4 would work.
    """
    return (room // partitions) % running


def keeps(room: int, partition: int, modulus: int) -> bool:
    """Whether a partition has a room, for who goes by that modulus."""
    return room % modulus == partition % modulus


def router_of(room: int, routers: int) -> int:
    """Which of the routers a gateway tells of a room; likewise which replica of a partition."""
    return room % routers


def router_partitions_of(broker_partition: int, brokers: int, routers: int) -> range:
    """The router partitions that a broker subscribes to (R12).

    With 4 of brokers and 2 of routers, 3 -> 1; with 4 and 8, 3 -> 3 and 7.
    """
    step = min(brokers, routers)
    return range(broker_partition % step, routers, step)


def sibling_of(partition: int, partitions: int) -> int:
    """The partition that has what a new one is to have, before the number doubles."""
    return partition % partitions


def is_power_of_two(number: int) -> bool:
    """Whether a number may be one of partitions."""
    return 1 <= number <= PARTITIONS_MAX and number & (number - 1) == 0
