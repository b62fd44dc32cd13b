// What the load on queues needs to know of each server's protocol.
#pragma once
#include <stddef.h>

enum { QUEUE_PAYLOAD_BYTES_MAX = 4096, QUEUE_OVERHEAD_BYTES_MAX = 256, SAY_BYTES_MAX = 1024 };
// What a consumer may hold unacknowledged, and what it takes to acknowledge one.
enum { CREDIT_MAX = 1000, ACK_BYTES_MAX = 160 };

// What a frame from a server means: what was asked for is done, messages are stored, messages are
// delivered, a sign of life is wanted, or something went wrong.
typedef enum { NOTHING, DONE, STORED, DELIVERED, ALIVE, REFUSED } Meaning;

typedef struct {
  Meaning meaning;
  int count;  // of messages
} Seen;

// There is one producer and one consumer, so a protocol may remember in variables of its own what
// it has to.
typedef struct QueueProtocol {
  const char *name;
  // Writes the next of what a side says to begin with, each of which is answered; 0: it has begun.
  size_t (*say)(char *out, int consumer, int step, const char *queue, int credit);
  // Writes one durable message that is to be confirmed.
  size_t (*message)(char *out, const char *queue, const char *payload, size_t bytes);
  // Makes one frame of equal messages, where the protocol can say several things at once.
  size_t (*join)(char *out, const char *message, size_t bytes, int count);
  // The length of the first frame in `in`, or 0 when it is not whole yet, and what it means; what
  // it delivers is to be acknowledged.
  size_t (*cut)(int consumer, const unsigned char *in, size_t bytes, Seen *seen);
  // Writes the acknowledgements of all that was cut since it was called last, and asks for more
  // where messages come only when asked for.
  size_t (*acknowledge)(char *out);
  const char *alive;
  size_t alive_bytes;
} QueueProtocol;

extern const QueueProtocol AMQP, AMQP_QUORUM;

// The protocol of that name, or NULL.
const QueueProtocol *find_queue_protocol(const char *name);
