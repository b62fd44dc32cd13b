// The protocols of the servers that are compared: greetings, messages, and where a frame ends.
//
// Every server does the same work. Fan-out: subscribers of one topic named t. Pairs: a sender and a
// receiver for each number; where a server has no addresses of its own kind for a single receiver,
// a topic with one subscriber stands for it. Rooms: the same as fan-out, to members of room 1.
#define _GNU_SOURCE
#include "protocols.h"

#include "packed.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int listens(Role role) { return role == SUBSCRIBER || role == RECEIVER; }

static const char *subject_of(Role role, int number) {
  static char subject[32];
  if (role == SENDER || role == RECEIVER)
    snprintf(subject, sizeof subject, "t%06d", number);
  else
    strcpy(subject, "t");
  return subject;
}

// NATS: lines; a message's line ends in its size.

static size_t nats_greet(char *out, Role role, int number, int *answers) {
  *answers = 1;
  size_t n = sprintf(out, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\n");
  if (listens(role)) n += sprintf(out + n, "SUB %s 1\r\n", subject_of(role, number));
  return n + sprintf(out + n, "PING\r\n");
}

static size_t nats_message(char *out, Role role, int number, const char *payload, size_t bytes) {
  return sprintf(out, "PUB %s %zu\r\n%s\r\n", subject_of(role, number), bytes, payload);
}

static size_t nats_cut(const unsigned char *in, size_t bytes, Kind *kind, int *count) {
  *count = 1;
  const unsigned char *end = memchr(in, '\n', bytes);
  if (!end) return 0;
  size_t line = end + 1 - in;
  *kind = !memcmp(in, "PING", 4)   ? PING
          : !memcmp(in, "PONG", 4) ? ANSWER
          : !memcmp(in, "-ERR", 4) ? REFUSAL
                                   : IGNORED;
  if (memcmp(in, "MSG ", 4)) return line;
  const unsigned char *size = end;
  while (size[-1] != ' ') size--;
  line += strtoul((const char *)size, NULL, 10) + 2;
  *kind = DELIVERY;
  return line <= bytes ? line : 0;
}

// Redis: RESP arrays of bulk strings.

static size_t redis_greet(char *out, Role role, int number, int *answers) {
  *answers = 1;
  if (!listens(role)) return sprintf(out, "*1\r\n$4\r\nPING\r\n");
  const char *subject = subject_of(role, number);
  return sprintf(out, "*2\r\n$9\r\nSUBSCRIBE\r\n$%zu\r\n%s\r\n", strlen(subject), subject);
}

static size_t redis_message(char *out, Role role, int number, const char *payload, size_t bytes) {
  const char *subject = subject_of(role, number);
  return sprintf(out, "*3\r\n$7\r\nPUBLISH\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(subject), subject,
                 bytes, payload);
}

static size_t redis_cut(const unsigned char *in, size_t bytes, Kind *kind, int *count) {
  *count = 1;
  const unsigned char *end = memchr(in, '\n', bytes);
  if (!end) return 0;
  size_t at = end + 1 - in;
  *kind = in[0] == '+' ? ANSWER : in[0] == '-' ? REFUSAL : IGNORED;
  if (in[0] != '*') return at;
  for (int left = in[1] - '0'; left > 0; left--) {
    if (at >= bytes || !(end = memchr(in + at, '\n', bytes - at))) return 0;
    size_t item = end + 1 - in;
    if (in[at] == '$') {
      size_t size = strtoul((const char *)in + at + 1, NULL, 10);
      if (item + size + 2 > bytes) return 0;
      if (size == 7 && !memcmp(in + item, "message", 7)) *kind = DELIVERY;
      if (size == 9 && !memcmp(in + item, "subscribe", 9)) *kind = ANSWER;
      item += size + 2;
    }
    at = item;
  }
  return at;
}

// MQTT 3.1.1, quality of service 0.

static size_t mqtt_packet(char *out, int type, const char *body, size_t bytes) {
  size_t n = 0, left = bytes;
  out[n++] = (char)type;
  do {
    out[n++] = (char)((left & 127) | (left > 127 ? 128 : 0));
    left >>= 7;
  } while (left);
  memcpy(out + n, body, bytes);
  return n + bytes;
}

static size_t mqtt_text(char *out, const char *text) {
  size_t n = strlen(text);
  out[0] = (char)(n >> 8);
  out[1] = (char)n;
  memcpy(out + 2, text, n);
  return n + 2;
}

static size_t mqtt_greet(char *out, Role role, int number, int *answers) {
  char body[128] = "\0\4MQTT\4\2\0\0", id[24];
  // A name that comes back too soon makes the server close whom it knew by that name.
  snprintf(id, sizeof id, "%c%06d-%d", listens(role) ? 'r' : 's', number, getpid());
  size_t n = mqtt_packet(out, 0x10, body, 10 + mqtt_text(body + 10, id));
  *answers = 1;
  if (!listens(role)) return n;
  *answers = 2;
  body[0] = 0, body[1] = 1;
  size_t size = 2 + mqtt_text(body + 2, subject_of(role, number));
  body[size++] = 0;
  return n + mqtt_packet(out + n, 0x82, body, size);
}

static size_t mqtt_message(char *out, Role role, int number, const char *payload, size_t bytes) {
  char body[PAYLOAD_BYTES_MAX + OVERHEAD_BYTES_MAX];
  size_t n = mqtt_text(body, subject_of(role, number));
  memcpy(body + n, payload, bytes);
  return mqtt_packet(out, 0x30, body, n + bytes);
}

static size_t mqtt_cut(const unsigned char *in, size_t bytes, Kind *kind, int *count) {
  *count = 1;
  size_t at = 1, size = 0;
  for (int shift = 0;; shift += 7) {
    if (at >= bytes) return 0;
    size |= (size_t)(in[at] & 127) << shift;
    if (!(in[at++] & 128)) break;
  }
  if (at + size > bytes) return 0;
  int type = in[0] >> 4;
  *kind = type == 3 ? DELIVERY : type == 9 ? ANSWER : IGNORED;
  if (type == 2) *kind = in[at + 1] ? REFUSAL : ANSWER;
  return at + size;
}

// Chappe in JSON on WebSocket. Masked with a constant: frames are made once and sent often.

static const unsigned char MASK[4] = {0x37, 0xfa, 0x21, 0x3d};

static size_t websocket_frame(char *out, const char *body, size_t bytes) {
  size_t n = 0;
  out[n++] = (char)0x81;
  if (bytes < 126) {
    out[n++] = (char)(0x80 | bytes);
  } else {
    out[n++] = (char)(0x80 | 126);
    out[n++] = (char)(bytes >> 8);
    out[n++] = (char)bytes;
  }
  memcpy(out + n, MASK, 4);
  n += 4;
  for (size_t i = 0; i < bytes; i++) out[n + i] = body[i] ^ MASK[i & 3];
  return n + bytes;
}

static size_t json_enter(char *out, Role role, int number, int *answers, const char *enter) {
  char op[128];
  int size = sprintf(op, "{\"op\":\"hello\",\"id\":1,\"as\":\"user:%c%06d\"}",
                     listens(role) ? 'r' : 's', number);
  size_t n = websocket_frame(out, op, size);
  *answers = 1;
  if (role != SUBSCRIBER) return n;
  *answers = 2;
  return n + websocket_frame(out + n, enter, strlen(enter));
}

static size_t json_greet(char *out, Role role, int number, int *answers) {
  return json_enter(out, role, number, answers, "{\"op\":\"subscribe\",\"id\":2,\"to\":\"topic:t\"}");
}

static size_t json_room_greet(char *out, Role role, int number, int *answers) {
  return json_enter(out, role, number, answers, "{\"op\":\"join\",\"id\":2,\"to\":\"room:1\"}");
}

static size_t json_op(char *out, Role role, int number, const char *payload, const char *id, const char *many) {
  char op[PAYLOAD_BYTES_MAX + OVERHEAD_BYTES_MAX], to[24];
  strcpy(to, many);
  if (role == SENDER) snprintf(to, sizeof to, "user:r%06d", number);
  int size = sprintf(op, "{\"op\":\"%s\",%s\"to\":\"%s\",\"data\":\"%s\"}",
                     role == SENDER ? "send" : "publish", id, to, payload);
  return websocket_frame(out, op, size);
}

static size_t json_message(char *out, Role role, int number, const char *payload, size_t bytes) {
  (void)bytes;
  return json_op(out, role, number, payload, "", "topic:t");
}

static size_t json_request(char *out, Role role, int number, const char *payload, size_t bytes) {
  (void)bytes;
  return json_op(out, role, number, payload, "\"id\":3,", "topic:t");
}

static size_t json_room_message(char *out, Role role, int number, const char *payload, size_t bytes) {
  (void)bytes;
  return json_op(out, role, number, payload, "", "room:1");
}

static size_t websocket_cut(const unsigned char *in, size_t bytes, Kind *kind, int *count) {
  *count = 1;
  if (bytes < 2) return 0;
  size_t head = in[1] == 127 ? 10 : in[1] == 126 ? 4 : 2, size = in[1];
  if (bytes < head) return 0;
  if (head > 2) size = 0;
  for (size_t i = 2; i < head; i++) size = size << 8 | in[i];
  if (head + size > bytes) return 0;
  const unsigned char *body = in + head;
  int opcode = in[0] & 15;
  *kind = opcode == 9 ? PING : opcode == 10 ? IGNORED : REFUSAL;
  if (opcode != 1 || size < 9 || memcmp(body, "{\"op\":\"", 7)) return head + size;
  if (body[7] == 'm') *kind = DELIVERY;
  if (body[7] == 'r' && memmem(body, size, "\"ok\":true", 9)) *kind = ANSWER;
  return head + size;
}

// Chappe packed on TCP.

static size_t packed_enter(char *out, Role role, int number, int *answers, int code, const char *to) {
  char array[64] = {(char)0x93, 1, 1}, address[24];
  snprintf(address, sizeof address, "user:%c%06d", listens(role) ? 'r' : 's', number);
  size_t n = packed_frame(out, array, 3 + packed_text(array + 3, address));
  *answers = 1;
  if (role != SUBSCRIBER) return n;
  *answers = 2;
  array[1] = (char)code, array[2] = 2;
  return n + packed_frame(out + n, array, 3 + packed_text(array + 3, to));
}

static size_t packed_greet(char *out, Role role, int number, int *answers) {
  return packed_enter(out, role, number, answers, 6, "topic:t");
}

static size_t packed_room_greet(char *out, Role role, int number, int *answers) {
  return packed_enter(out, role, number, answers, 9, "room:1");
}

static size_t packed_op(char *out, Role role, int number, const char *payload, size_t bytes, const char *many) {
  char array[PAYLOAD_BYTES_MAX + OVERHEAD_BYTES_MAX] = {(char)0x95, role == SENDER ? 4 : 5, (char)0xc0}, to[24];
  strcpy(to, many);
  if (role == SENDER) snprintf(to, sizeof to, "user:r%06d", number);
  size_t n = 3 + packed_text(array + 3, to);
  n += packed_bytes(array + n, payload, bytes);
  array[n++] = (char)0xc3;
  return packed_frame(out, array, n);
}

static size_t packed_message(char *out, Role role, int number, const char *payload, size_t bytes) {
  return packed_op(out, role, number, payload, bytes, "topic:t");
}

static size_t packed_room_message(char *out, Role role, int number, const char *payload, size_t bytes) {
  return packed_op(out, role, number, payload, bytes, "room:1");
}

// A message with an id: behind the frame's head, the array's and the op's code.
static size_t packed_request(char *out, Role role, int number, const char *payload, size_t bytes) {
  size_t n = packed_message(out, role, number, payload, bytes);
  out[7] = 3;
  return n;
}

static Kind packed_kind(const unsigned char *op) {
  if (*op == PACKED_DELIVERY) return DELIVERY;
  if (*op == PACKED_REPLY && op[2] == 0xc3) return ANSWER;
  return *op == PACKED_PING ? PING : REFUSAL;
}

static size_t packed_cut(const unsigned char *in, size_t bytes, Kind *kind, int *count) {
  if (bytes < 7) return 0;  // the shortest op is an array of nothing but its code
  size_t frame = 4 + big_endian(in, 4), ops = 1, fields, at = 5;
  if (frame > bytes) return 0;
  size_t head = array_head(in + at, &fields);
  if (is_array(in[at + head])) at += head, ops = fields;
  *count = 0;
  while (ops--) {
    at += array_head(in + at, &fields);
    *kind = packed_kind(in + at);
    // Replies are joined only where a queue is sent to or acknowledged: none of them comes here.
    if (*kind != DELIVERY) break;
    ++*count;
    while (ops && fields--) at += packed_value(in + at);
  }
  return frame;
}

static const char UPGRADE[] =
    "GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

static const Protocol PROTOCOLS[] = {
    {"nats", NULL, nats_greet, nats_message, NULL, nats_cut, "PONG\r\n", 6},
    {"redis", NULL, redis_greet, redis_message, NULL, redis_cut, NULL, 0},
    {"mqtt", NULL, mqtt_greet, mqtt_message, NULL, mqtt_cut, NULL, 0},
    {"json", UPGRADE, json_greet, json_message, NULL, websocket_cut, "\x8a\x80\x37\xfa\x21\x3d", 6},
    {"packed", NULL, packed_greet, packed_message, packed_join, packed_cut, PACKED_PONG, PACKED_PONG_BYTES},
    {"packed-single", NULL, packed_greet, packed_message, NULL, packed_cut, PACKED_PONG, PACKED_PONG_BYTES},
    {"json-acknowledged", UPGRADE, json_greet, json_request, NULL, websocket_cut,
     "\x8a\x80\x37\xfa\x21\x3d", 6, 1},
    {"packed-acknowledged", NULL, packed_greet, packed_request, packed_join, packed_cut,
     PACKED_PONG, PACKED_PONG_BYTES, 1},
    {"json-room", UPGRADE, json_room_greet, json_room_message, NULL, websocket_cut,
     "\x8a\x80\x37\xfa\x21\x3d", 6},
    {"packed-room", NULL, packed_room_greet, packed_room_message, packed_join, packed_cut, PACKED_PONG,
     PACKED_PONG_BYTES},
};

const Protocol *find_protocol(const char *name) {
  for (size_t i = 0; i < sizeof PROTOCOLS / sizeof *PROTOCOLS; i++)
    if (!strcmp(PROTOCOLS[i].name, name)) return &PROTOCOLS[i];
  return NULL;
}
