// Chappe packed on TCP: length, version, msgpack array.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char PACKED_PONG[] = "\0\0\0\3\1\x91\3";
enum { PACKED_PONG_BYTES = 7 };

// The codes of what a hub says, and of the one thing that it asks.
enum { PACKED_PING = 2, PACKED_REPLY = 32, PACKED_DELIVERY = 33 };

static inline size_t packed_frame(char *out, const char *array, size_t bytes) {
  uint32_t length = (uint32_t)bytes + 1;
  for (int i = 0; i < 4; i++) out[i] = (char)(length >> (24 - 8 * i));
  out[4] = 1;
  memcpy(out + 5, array, bytes);
  return bytes + 5;
}

static inline size_t packed_text(char *out, const char *text) {
  size_t n = strlen(text);
  out[0] = (char)(0xa0 | n);
  memcpy(out + 1, text, n);
  return n + 1;
}

static inline size_t packed_bytes(char *out, const char *data, size_t bytes) {
  out[0] = (char)0xc5;
  out[1] = (char)(bytes >> 8);
  out[2] = (char)bytes;
  memcpy(out + 3, data, bytes);
  return bytes + 3;
}

// Many ops in one frame, an array of their arrays: what goes before the arrays of `bytes`.
static inline size_t packed_many(char *out, size_t bytes, int count) {
  size_t body = 1 + 3 + bytes, n = 0;
  for (int i = 0; i < 4; i++) out[n++] = (char)(body >> (24 - 8 * i));
  out[n++] = 1;
  out[n++] = (char)0xdc;
  out[n++] = (char)(count >> 8);
  out[n++] = (char)count;
  return n;
}

// One frame of equal ops.
static inline size_t packed_join(char *out, const char *message, size_t bytes, int count) {
  size_t op = bytes - 5, n = packed_many(out, count * op, count);
  for (int i = 0; i < count; i++, n += op) memcpy(out + n, message + 5, op);
  return n;
}

static inline size_t big_endian(const unsigned char *in, int bytes) {
  size_t value = 0;
  while (bytes--) value = value << 8 | *in++;
  return value;
}

static inline size_t array_head(const unsigned char *in, size_t *items) {
  *items = *in == 0xdc ? big_endian(in + 1, 2) : *in & 15;
  return *in == 0xdc ? 3 : 1;
}

static inline int is_array(unsigned char lead) { return (lead & 0xf0) == 0x90 || lead == 0xdc; }

// The length of a msgpack value of the kinds that a hub's ops are made of.
static inline size_t packed_value(const unsigned char *in) {
  if (is_array(*in)) {
    size_t items, n = array_head(in, &items);
    while (items--) n += packed_value(in + n);
    return n;
  }
  if (*in < 0x80 || *in >= 0xe0 || *in == 0xc0 || *in == 0xc2 || *in == 0xc3) return 1;
  if (*in >= 0xa0 && *in < 0xc0) return 1 + (*in & 31);
  if (*in >= 0xc4 && *in <= 0xc6) return 1 + (1 << (*in - 0xc4)) + big_endian(in + 1, 1 << (*in - 0xc4));
  if (*in >= 0xd9 && *in <= 0xdb) return 1 + (1 << (*in - 0xd9)) + big_endian(in + 1, 1 << (*in - 0xd9));
  if (*in >= 0xcc && *in <= 0xcf) return 1 + (1 << (*in - 0xcc));
  if (*in == 0xcb) return 9;
  fprintf(stderr, "an op holds a value of kind %02x\n", *in);
  exit(2);
}
