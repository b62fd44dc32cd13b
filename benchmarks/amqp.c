// AMQP 0-9-1, as much of it as a producer with confirms and a consumer with acknowledgements need:
//
//   type:1 channel:2 size:4 | class:2 method:2 arguments | 0xCE
#include "queue_protocols.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { METHOD = 1, HEADER = 2, BODY = 3, FRAME_END = 0xce, FRAME_BYTES_MIN = 8 };
enum { CONNECTION = 10, CHANNEL = 20, QUEUE = 50, BASIC = 60, CONFIRM = 85 };
enum { PERSISTENT = 2, DURABLE = 2, HAS_DELIVERY_MODE = 0x1000 };

static char acks[CREDIT_MAX * ACK_BYTES_MAX];
static size_t ack_bytes;

static size_t put(char *out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) out[i] = (char)(value >> 8 * (bytes - 1 - i));
  return bytes;
}

static uint64_t get(const unsigned char *in, int bytes) {
  uint64_t value = 0;
  while (bytes--) value = value << 8 | *in++;
  return value;
}

static size_t put_text(char *out, const char *text) {
  size_t n = strlen(text);
  out[0] = (char)n;
  memcpy(out + 1, text, n);
  return n + 1;
}

static size_t frame(char *out, int type, int channel, const char *body, size_t bytes) {
  size_t n = put(out, type, 1);
  n += put(out + n, channel, 2);
  n += put(out + n, bytes, 4);
  memcpy(out + n, body, bytes);
  return n + bytes + put(out + n + bytes, FRAME_END, 1);
}

static size_t method(char *out, int class, int number, const char *arguments, size_t bytes) {
  char body[SAY_BYTES_MAX];
  size_t n = put(body, class, 2);
  n += put(body + n, number, 2);
  memcpy(body + n, arguments, bytes);
  return frame(out, METHOD, class != CONNECTION, body, n + bytes);
}

static size_t say_start_ok(char *out) {
  static const char arguments[] = "\0\0\0\0\5PLAIN\0\0\0\14\0guest\0guest\5en_US";
  return method(out, CONNECTION, 11, arguments, sizeof arguments - 1);
}

static size_t say_open(char *out) {
  char tune[8];
  put(tune, 2047, 2), put(tune + 2, 131072, 4), put(tune + 6, 0, 2);  // no heartbeats
  size_t n = method(out, CONNECTION, 31, tune, sizeof tune);
  return n + method(out + n, CONNECTION, 40, "\1/\0\0", 4);
}

static size_t say_declare(char *out, const char *queue, int quorum) {
  static const char type[] = "\14x-queue-typeS\0\0\0\6quorum";
  char arguments[SAY_BYTES_MAX / 2];
  size_t n = put(arguments, 0, 2), table = quorum ? sizeof type - 1 : 0;
  n += put_text(arguments + n, queue);
  n += put(arguments + n, DURABLE, 1);
  n += put(arguments + n, table, 4);
  memcpy(arguments + n, type, table);
  return method(out, QUEUE, 10, arguments, n + table);
}

static size_t say_qos(char *out, int credit) {
  char arguments[7] = {0};
  put(arguments + 4, credit, 2);
  return method(out, BASIC, 10, arguments, sizeof arguments);
}

static size_t say_consume(char *out, const char *queue) {
  char arguments[SAY_BYTES_MAX / 2];
  size_t n = put(arguments, 0, 2);
  n += put_text(arguments + n, queue);
  n += put(arguments + n, 0, 1 + 1 + 4);  // no tag, no flags, no table
  return method(out, BASIC, 20, arguments, n);
}

static size_t say(char *out, int consumer, int step, const char *queue, int credit, int quorum) {
  switch (step) {
    case 0: return memcpy(out, "AMQP\0\0\11\1", 8), 8;
    case 1: return say_start_ok(out);
    case 2: return say_open(out);
    case 3: return method(out, CHANNEL, 10, "", 1);
    case 4: return say_declare(out, queue, quorum);
    case 5: return consumer ? say_qos(out, credit) : method(out, CONFIRM, 10, "", 1);
    case 6: return consumer ? say_consume(out, queue) : 0;
    default: return 0;
  }
}

static size_t amqp_say(char *out, int consumer, int step, const char *queue, int credit) {
  return say(out, consumer, step, queue, credit, 0);
}

static size_t quorum_say(char *out, int consumer, int step, const char *queue, int credit) {
  return say(out, consumer, step, queue, credit, 1);
}

static size_t amqp_message(char *out, const char *queue, const char *payload, size_t bytes) {
  char body[SAY_BYTES_MAX / 2];
  size_t n = put(body, 0, 2 + 1);  // the default exchange
  n += put_text(body + n, queue);
  n += put(body + n, 0, 1);
  size_t size = method(out, BASIC, 40, body, n);
  n = put(body, BASIC, 2);
  n += put(body + n, 0, 2);
  n += put(body + n, bytes, 8);
  n += put(body + n, HAS_DELIVERY_MODE, 2);
  n += put(body + n, PERSISTENT, 1);
  size += frame(out + size, HEADER, 1, body, n);
  return size + frame(out + size, BODY, 1, payload, bytes);
}

// How many messages a confirm is about: one, or all up to it that were not confirmed yet.
static int confirmed(uint64_t tag, int multiple) {
  enum { TAGS = 1 << 14 };
  static unsigned char seen[TAGS];
  static uint64_t floor;
  int count = 0;
  for (uint64_t at = multiple ? floor + 1 : tag; at <= tag; at++) {
    if (!seen[at % TAGS]) count++;
    seen[at % TAGS] = 1;
  }
  for (; seen[(floor + 1) % TAGS]; floor++) seen[(floor + 1) % TAGS] = 0;
  return count;
}

static void acknowledge_later(uint64_t tag) {
  char arguments[9] = {0};
  put(arguments, tag, 8);
  if (ack_bytes + ACK_BYTES_MAX > sizeof acks) {
    fprintf(stderr, "more messages than were asked for\n");
    exit(2);
  }
  ack_bytes += method(acks + ack_bytes, BASIC, 80, arguments, sizeof arguments);
}

static void take_method(const unsigned char *in, Seen *seen) {
  int class = (int)get(in, 2), number = (int)get(in + 2, 2);
  seen->meaning = DONE;
  if (class == BASIC && number == 60) {
    acknowledge_later(get(in + 5 + in[4], 8));
    seen->meaning = NOTHING;  // the body is to come
  } else if (class == BASIC && number == 80) {
    seen->meaning = STORED;
    seen->count = confirmed(get(in + 4, 8), in[12] & 1);
  } else if ((class == BASIC && number == 120) || (class == CONNECTION && number == 50) ||
             (class == CHANNEL && number == 40)) {
    seen->meaning = REFUSED;
  }
}

static size_t amqp_cut(int consumer, const unsigned char *in, size_t bytes, Seen *seen) {
  (void)consumer;
  if (bytes < FRAME_BYTES_MIN) return 0;
  size_t size = get(in + 3, 4) + FRAME_BYTES_MIN;
  if (!memcmp(in, "AMQP", 4)) return seen->meaning = REFUSED, 8;
  if (size > bytes) return 0;
  seen->count = 1;
  if (*in == METHOD) take_method(in + 7, seen);
  if (*in == BODY) seen->meaning = DELIVERED;
  return size;
}

static size_t amqp_acknowledge(char *out) {
  size_t n = ack_bytes;
  memcpy(out, acks, n);
  ack_bytes = 0;
  return n;
}

const QueueProtocol AMQP = {"amqp", amqp_say, amqp_message, NULL, amqp_cut, amqp_acknowledge, NULL, 0};
const QueueProtocol AMQP_QUORUM = {
    "amqp-quorum", quorum_say, amqp_message, NULL, amqp_cut, amqp_acknowledge, NULL, 0};
