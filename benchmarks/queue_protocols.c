// The protocols of servers that keep queues: Chappe, NATS JetStream, Redis Streams; AMQP is in
// amqp.c. Each consumer acknowledges every message by itself, as many at once as it has read.
#define _GNU_SOURCE
#include "queue_protocols.h"

#include "packed.h"

#include <ctype.h>

static char acks[CREDIT_MAX * ACK_BYTES_MAX];
static size_t ack_bytes;
static int ack_count;

static size_t take_acks(char *out) {
  size_t n = ack_bytes;
  memcpy(out, acks, n);
  ack_bytes = 0, ack_count = 0;
  return n;
}

static void expect_credit(void) {
  if (ack_count++ < CREDIT_MAX) return;
  fprintf(stderr, "more messages than were asked for\n");
  exit(2);
}

// Chappe, packed on TCP.

enum { HELLO = 1, SEND = 4, CONSUME = 12, ACK = 13, CREATE = 21 };

static int packed_in_memory;

static size_t packed_say(char *out, int consumer, int step, const char *queue, int credit) {
  char op[SAY_BYTES_MAX] = {(char)0x93, HELLO, 1}, to[64];
  snprintf(to, sizeof to, "queue:%s", queue);
  if (step == 0) return packed_frame(out, op, 3 + packed_text(op + 3, consumer ? "user:c" : "user:p"));
  op[1] = step == 1 ? CREATE : CONSUME;
  size_t n = 3 + packed_text(op + 3, to);
  if (step == 1 && packed_in_memory) {  // behind the options of a topic
    op[0] = (char)0x97;
    memcpy(op + n, "\xc0\xc0\xc0\xc3", 4);
    n += 4;
  }
  if (step == 1) return packed_frame(out, op, n);
  if (step > 2 || !consumer) return 0;
  op[0] = (char)0x94;
  op[n++] = (char)0xcd;
  op[n++] = (char)(credit >> 8);
  op[n++] = (char)credit;
  return packed_frame(out, op, n);
}

static size_t volatile_say(char *out, int consumer, int step, const char *queue, int credit) {
  packed_in_memory = 1;
  return packed_say(out, consumer, step, queue, credit);
}

static size_t packed_send(char *out, const char *queue, const char *payload, size_t bytes) {
  char op[QUEUE_PAYLOAD_BYTES_MAX + QUEUE_OVERHEAD_BYTES_MAX] = {(char)0x95, SEND, 2}, to[64];
  snprintf(to, sizeof to, "queue:%s", queue);
  size_t n = 3 + packed_text(op + 3, to);
  n += packed_bytes(op + n, payload, bytes);
  op[n++] = (char)0xc3;
  return packed_frame(out, op, n);
}

// Takes the id of a delivered message, as it is written, into an op that acknowledges it.
static void packed_ack(const unsigned char *id) {
  size_t bytes = packed_value(id);
  expect_credit();
  acks[ack_bytes++] = (char)0x93;
  acks[ack_bytes++] = ACK;
  acks[ack_bytes++] = (char)0xc0;
  memcpy(acks + ack_bytes, id, bytes);
  ack_bytes += bytes;
}

static Meaning packed_meaning(int consumer, const unsigned char *op) {
  if (*op == PACKED_DELIVERY) return DELIVERED;
  if (*op == PACKED_PING) return ALIVE;
  if (*op != PACKED_REPLY || op[2] != 0xc3) return REFUSED;
  return op[1] == 2 && !consumer ? STORED : DONE;
}

static size_t packed_cut(int consumer, const unsigned char *in, size_t bytes, Seen *seen) {
  if (bytes < 7) return 0;  // the shortest op is an array of nothing but its code
  size_t frame = 4 + big_endian(in, 4), ops = 1, fields, at = 5;
  if (frame > bytes) return 0;
  size_t head = array_head(in + at, &fields);
  if (is_array(in[at + head])) at += head, ops = fields;
  while (ops--) {  // of one kind: the hub joins deliveries, or replies to sends, or to acks
    at += array_head(in + at, &fields);
    seen->meaning = packed_meaning(consumer, in + at);
    seen->count++;
    if (seen->meaning == DELIVERED) packed_ack(in + at + 1);
    while (ops && fields--) at += packed_value(in + at);
  }
  return frame;
}

static size_t packed_acknowledge(char *out) {
  if (!ack_count) return 0;
  size_t n = packed_many(out, ack_bytes, ack_count);
  return n + take_acks(out + n);
}

// NATS JetStream: file storage, a work queue, a consumer that is pushed to.

static size_t nats_call(char *out, const char *what, const char *to, const char *body) {
  return sprintf(out, "PUB $JS.API.%s.%s in.%s %zu\r\n%s\r\n", what, to, to, strlen(body), body);
}

static size_t nats_say(char *out, int consumer, int step, const char *queue, int credit) {
  char body[SAY_BYTES_MAX / 2], to[64];
  if (step == 0) {
    size_t n = sprintf(out, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\n");
    n += sprintf(out + n, "SUB in.%s%s 1\r\n", queue, consumer ? ".c" : "");
    if (consumer) n += sprintf(out + n, "SUB out.%s 2\r\n", queue);
    return n + sprintf(out + n, "PING\r\n");
  }
  if (step > 1) return 0;
  if (!consumer) {
    sprintf(body,
            "{\"name\":\"%s\",\"subjects\":[\"%s\"],\"storage\":\"file\","
            "\"retention\":\"workqueue\"}",
            queue, queue);
    return nats_call(out, "STREAM.CREATE", queue, body);
  }
  sprintf(to, "%s.c", queue);
  sprintf(body,
          "{\"stream_name\":\"%s\",\"config\":{\"durable_name\":\"c\",\"deliver_subject\":"
          "\"out.%s\",\"ack_policy\":\"explicit\",\"max_ack_pending\":%d}}",
          queue, queue, credit);
  return nats_call(out, "CONSUMER.DURABLE.CREATE", to, body);
}

static size_t nats_message(char *out, const char *queue, const char *payload, size_t bytes) {
  return sprintf(out, "PUB %s in.%s %zu\r\n%s\r\n", queue, queue, bytes, payload);
}

// What a message is, by its line, MSG SUBJECT SID [REPLY] BYTES, and its body.
static Meaning nats_meaning(const unsigned char *in, size_t line, size_t size) {
  const unsigned char *body = in + line, *sid = memchr(in + 4, ' ', line);
  if (sid[1] == '2') {
    const unsigned char *reply = sid + 3, *end = memchr(reply, ' ', body - reply);
    expect_credit();
    ack_bytes += sprintf(acks + ack_bytes, "PUB %.*s 4\r\n+ACK\r\n", (int)(end - reply), reply);
    return DELIVERED;
  }
  if (memmem(body, size, "\"error\"", 7)) return REFUSED;
  return memmem(body, size, "\"type\"", 6) ? DONE : STORED;
}

static size_t nats_cut(int consumer, const unsigned char *in, size_t bytes, Seen *seen) {
  (void)consumer;
  const unsigned char *end = memchr(in, '\n', bytes);
  if (!end) return 0;
  size_t line = end + 1 - in;
  seen->count = 1;
  seen->meaning = !memcmp(in, "PING", 4)   ? ALIVE
                  : !memcmp(in, "PONG", 4) ? DONE
                  : !memcmp(in, "-ERR", 4) ? REFUSED
                                           : NOTHING;
  if (memcmp(in, "MSG ", 4)) return line;
  const unsigned char *number = end;
  while (number[-1] != ' ') number--;
  size_t size = strtoul((const char *)number, NULL, 10);
  if (line + size + 2 > bytes) return 0;
  seen->meaning = nats_meaning(in, line, size);
  return line + size + 2;
}

// Redis Streams: one stream, one group. A consumer reads what there is, up to its credit,
// acknowledges it in one command and asks again.

static char redis_queue[64];
static int redis_credit, redis_asks, redis_counts, redis_left;

static size_t redis_command(char *out, int words, const char **word) {
  size_t n = sprintf(out, "*%d\r\n", words);
  for (int i = 0; i < words; i++) n += sprintf(out + n, "$%zu\r\n%s\r\n", strlen(word[i]), word[i]);
  return n;
}

static size_t redis_say(char *out, int consumer, int step, const char *queue, int credit) {
  if (step > 0) return 0;
  if (!consumer) return redis_command(out, 1, (const char *[]){"PING"});
  strcpy(redis_queue, queue);
  redis_credit = credit, redis_asks = 1;
  return redis_command(out, 6, (const char *[]){"XGROUP", "CREATE", queue, "g", "0", "MKSTREAM"});
}

static size_t redis_message(char *out, const char *queue, const char *payload, size_t bytes) {
  (void)bytes;
  return redis_command(out, 5, (const char *[]){"XADD", queue, "*", "d", payload});
}

// Of what is read every string tells by its first character what it is: an id is digits, a payload
// is of x, the stream and the field have other names.
static Meaning redis_text(int consumer, const unsigned char *text, size_t bytes) {
  if (!consumer) return STORED;
  if (isdigit(*text)) {
    expect_credit();
    ack_bytes += sprintf(acks + ack_bytes, "$%zu\r\n%.*s\r\n", bytes, (int)bytes, text);
  }
  redis_counts = !strncmp((const char *)text, redis_queue, bytes);
  if (*text != 'x') return NOTHING;
  redis_asks = !--redis_left;
  return DELIVERED;
}

static size_t redis_cut(int consumer, const unsigned char *in, size_t bytes, Seen *seen) {
  const unsigned char *end = memchr(in, '\n', bytes);
  if (!end) return 0;
  size_t line = end + 1 - in;
  seen->count = 1;
  seen->meaning = *in == '+' ? DONE : *in == '-' ? REFUSED : NOTHING;
  // The array of messages is the one behind the name of their stream.
  if (*in == '*' && redis_counts) {
    redis_left = (int)strtol((const char *)in + 1, NULL, 10);
    redis_counts = 0;
  }
  if (*in != '$') return line;
  size_t size = strtoul((const char *)in + 1, NULL, 10);
  if (line + size + 2 > bytes) return 0;
  seen->meaning = redis_text(consumer, in + line, size);
  return line + size + 2;
}

static size_t redis_acknowledge(char *out) {
  if (!redis_asks) return 0;
  char count[16];
  size_t n = 0;
  sprintf(count, "%d", redis_credit);
  if (ack_count) {
    n = sprintf(out, "*%d\r\n$4\r\nXACK\r\n$%zu\r\n%s\r\n$1\r\ng\r\n", 3 + ack_count,
                strlen(redis_queue), redis_queue);
    n += take_acks(out + n);
  }
  redis_asks = 0;
  return n + redis_command(out + n, 11,
                           (const char *[]){"XREADGROUP", "GROUP", "g", "c", "COUNT", count, "BLOCK",
                                            "0", "STREAMS", redis_queue, ">"});
}

static const QueueProtocol PACKED = {
    "packed", packed_say, packed_send, packed_join, packed_cut, packed_acknowledge,
    PACKED_PONG, PACKED_PONG_BYTES};
static const QueueProtocol VOLATILE = {
    "packed-volatile", volatile_say, packed_send, packed_join, packed_cut, packed_acknowledge,
    PACKED_PONG, PACKED_PONG_BYTES};
static const QueueProtocol JETSTREAM = {
    "nats", nats_say, nats_message, NULL, nats_cut, take_acks, "PONG\r\n", 6};
static const QueueProtocol STREAMS = {
    "redis", redis_say, redis_message, NULL, redis_cut, redis_acknowledge, NULL, 0};

const QueueProtocol *find_queue_protocol(const char *name) {
  const QueueProtocol *all[] = {&PACKED, &VOLATILE, &JETSTREAM, &STREAMS, &AMQP, &AMQP_QUORUM};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (!strcmp(all[i]->name, name)) return all[i];
  return NULL;
}
