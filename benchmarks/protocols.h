// What the load generator needs to know of each server's protocol.
#pragma once
#include <stddef.h>

enum { PAYLOAD_BYTES_MAX = 4096, GREETING_BYTES_MAX = 512, REPLY_BYTES_MAX = 1 << 18 };
// What a message may need beside its payload, in any of the protocols.
enum { OVERHEAD_BYTES_MAX = 128 };

// What a frame from a server means to the load.
typedef enum { IGNORED, DELIVERY, ANSWER, PING, REFUSAL } Kind;

// One connection's part in the work.
typedef enum { IDLE, PUBLISHER, SUBSCRIBER, SENDER, RECEIVER } Role;

typedef struct Protocol {
  const char *name;
  // Whether HTTP is spoken first; `upgrade` asks, and the greeting follows its answer.
  const char *upgrade;
  // Writes what a connection says when it begins; sets how many answers it must get.
  size_t (*greet)(char *out, Role role, int number, int *answers);
  // Writes a message: from a publisher to the topic, from a sender to its own receiver.
  size_t (*message)(char *out, Role role, int number, const char *payload, size_t bytes);
  // Makes one frame of equal messages, where the protocol can say several things at once.
  size_t (*join)(char *out, const char *message, size_t bytes, int count);
  // The length of the first frame in `in`, or 0 when it is not whole yet; says what it is, and of
  // a delivery how many messages it holds.
  size_t (*cut)(const unsigned char *in, size_t bytes, Kind *kind, int *count);
  const char *pong;
  size_t pong_bytes;
  // Whether every message asks for an answer of its own.
  int acknowledged;
} Protocol;

// The protocol of that name, or NULL.
const Protocol *find_protocol(const char *name);
