"""The flow of P3: what is done about every command in every state.

    NEW --auth--> CHECKING --found--> OFFERED --exchange_key--> JOINING --route written--> READY
                                                                                             |
                                                        LIVE <--------get_message_list-------+

              NEW      CHECKING  OFFERED   JOINING  READY     LIVE
    auth      check    end       end       wait     refuse    refuse
    exchange  end      end       agree     wait     refuse    refuse
    heartbeat end      end       beat      wait     beat      beat
    list      end      end       end       wait     list      list
    topics    end      end       end       wait     topics    topics
    ack       end      end       end       wait     ack       ack
    garbage   end      end       end       wait     refuse    refuse

*end* is error 4 and the end of the connection, *refuse* is error 4 and no more. *wait* is done when
the state has changed; so is whatever comes while a command of the device is being carried out, as
answers have no numbers and are told apart by their order.
"""

from __future__ import annotations

from enum import Enum, auto

from chappe.push.comet.session import Malformed, State
from chappe.wire.push import (
    COMMANDS,
    Auth,
    ExchangeKey,
    GetMessageList,
    GetTopicList,
    Heartbeat,
    MessageAck,
    Subscribe,
    Unsubscribe,
)


class Act(Enum):
    """What is done about a command."""

    END = auto()
    REFUSE = auto()
    WAIT = auto()
    CHECK = auto()
    AGREE = auto()
    BEAT = auto()
    LIST = auto()
    TOPICS = auto()
    ACK = auto()


_ALL: tuple[type, ...] = (*COMMANDS, Malformed)
_KNOWN: dict[type, Act] = {
    Auth: Act.REFUSE,
    ExchangeKey: Act.REFUSE,
    Heartbeat: Act.BEAT,
    GetMessageList: Act.LIST,
    GetTopicList: Act.TOPICS,
    Subscribe: Act.TOPICS,
    Unsubscribe: Act.TOPICS,
    MessageAck: Act.ACK,
    Malformed: Act.REFUSE,
}

FLOW: dict[State, dict[type, Act]] = {
    State.NEW: dict.fromkeys(_ALL, Act.END) | {Auth: Act.CHECK},
    State.CHECKING: dict.fromkeys(_ALL, Act.END),
    State.OFFERED: dict.fromkeys(_ALL, Act.END) | {ExchangeKey: Act.AGREE, Heartbeat: Act.BEAT},
    State.JOINING: dict.fromkeys(_ALL, Act.WAIT),
    State.READY: _KNOWN,
    State.LIVE: _KNOWN,
}

# What an end or a refusal says, by state: what was wanted.
WANTED = {
    State.NEW: "auth is wanted first",
    State.CHECKING: "auth is not answered yet",
    State.OFFERED: "exchange_key is wanted",
    State.READY: "a connection logs in once",
    State.LIVE: "a connection logs in once",
}
