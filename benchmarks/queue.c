// queue: the same work for every server that keeps queues, on loopback.
//
//   queue PROTOCOL PORTS NAME work PAYLOAD WINDOW WARM_S SECONDS PID[,PID...]
//   queue PROTOCOL PORTS NAME fill PAYLOAD WINDOW COUNT PID[,PID...]
//
// PORTS is one port, or two: where the consumer connects, and where the producer does. NAME is a
// queue that is not there yet. work: one producer, at most WINDOW of its messages not confirmed to
// be stored, and one consumer that holds up to WINDOW messages and acknowledges each. After some
// warming up the producer sends for so many seconds; the time ends when the last of its messages
// was delivered and acknowledged, so a server that falls behind has to catch up. Every message must
// come, and come once. fill: the producer alone.
// Prints one line of JSON. The CPU time is that of the given server processes.
#define _GNU_SOURCE
#include "queue_protocols.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 18, STALL_S = 30, AFTERMATH_MS = 100 };
enum { OUT_BYTES = CREDIT_MAX * ACK_BYTES_MAX + SAY_BYTES_MAX };

typedef struct {
  int fd, consumer, answered;
  unsigned char in[2 * READ_BYTES];
  size_t in_bytes;
  char out[2 * OUT_BYTES];  // what the socket did not take yet
  size_t out_bytes;
  int64_t seen;  // by the producer: stored; by the consumer: delivered
} Side;

static const QueueProtocol *protocol;
static const char *queue, *pids;
static int window;
static Side producer, consumer = {.consumer = 1};
static char *frames;  // half a window of messages, twice
static size_t chunk_bytes, owed, at;
static int chunk;
static int64_t sent;

static void fail(const char *what) {
  perror(what);
  exit(2);
}

static void give_up(const char *why) {
  fprintf(stderr, "%s\n", why);
  exit(2);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

// The CPU seconds of whole processes, to the nanosecond; /proc counts in hundredths of a second.
static double cpu(void) {
  double sum = 0;
  for (const char *next = pids; *next; next += strspn(next, ",")) {
    clockid_t clock;
    struct timespec t;
    pid_t pid = (pid_t)strtol(next, (char **)&next, 10);
    if (!clock_getcpuclockid(pid, &clock) && !clock_gettime(clock, &t))
      sum += t.tv_sec + t.tv_nsec * 1e-9;
    if (*next && *next != ',') break;
  }
  return sum;
}

static void flush(Side *side) {
  ssize_t n = side->out_bytes ? write(side->fd, side->out, side->out_bytes) : 0;
  if (n < 0 && errno != EAGAIN) fail("write");
  if (n <= 0) return;
  side->out_bytes -= n;
  memmove(side->out, side->out + n, side->out_bytes);
}

static char *room(Side *side) {
  if (side->out_bytes > OUT_BYTES) give_up("the server does not read");
  return side->out + side->out_bytes;
}

static void refuse(const unsigned char *frame, size_t bytes) {
  fputs("refused: ", stderr);
  for (size_t i = 0; i < bytes && i < 300; i++)
    fputc(frame[i] < ' ' || frame[i] > '~' ? '.' : frame[i], stderr);
  exit(2);
}

static void take_frame(Side *side, Seen seen, const unsigned char *frame, size_t bytes) {
  if (seen.meaning == REFUSED) refuse(frame, bytes);
  if (seen.meaning == DONE) side->answered = 1;
  if (seen.meaning == STORED || seen.meaning == DELIVERED) side->seen += seen.count;
  if (seen.meaning != ALIVE) return;
  memcpy(room(side), protocol->alive, protocol->alive_bytes);
  side->out_bytes += protocol->alive_bytes;
}

static void take_bytes(Side *side) {
  ssize_t n = read(side->fd, side->in + side->in_bytes, READ_BYTES);
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0)
    give_up(side->consumer ? "the server closed the consumer's connection"
                           : "the server closed the producer's connection");
  size_t begin = 0, end = side->in_bytes + n;
  while (begin < end) {
    Seen seen = {NOTHING, 0};
    size_t bytes = protocol->cut(side->consumer, side->in + begin, end - begin, &seen);
    if (!bytes) break;
    take_frame(side, seen, side->in + begin, bytes);
    begin += bytes;
  }
  side->in_bytes = end - begin;
  if (side->in_bytes > READ_BYTES) give_up("a frame that does not end");
  memmove(side->in, side->in + begin, side->in_bytes);
}

static void dial(Side *side, int port) {
  int one = 1;
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons(port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  side->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (side->fd < 0 || connect(side->fd, (void *)&to, sizeof to)) fail("connect");
  setsockopt(side->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  fcntl(side->fd, F_SETFL, O_NONBLOCK);
  for (int step = 0;; step++) {
    size_t bytes = protocol->say(room(side), side->consumer, step, queue, window);
    if (!bytes) return;
    side->out_bytes += bytes;
    side->answered = 0;
    for (double begun = now(); !side->answered;) {
      struct pollfd ready = {side->fd, POLLIN, 0};
      flush(side);
      if (poll(&ready, 1, 100) > 0) take_bytes(side);
      if (now() - begun > STALL_S) give_up("no answer");
    }
  }
}

// Makes what is written at once: half a window of messages, joined where the protocol can.
static void prepare(size_t bytes) {
  char payload[QUEUE_PAYLOAD_BYTES_MAX + 1], one[QUEUE_PAYLOAD_BYTES_MAX + QUEUE_OVERHEAD_BYTES_MAX];
  memset(payload, 'x', bytes);
  payload[bytes] = 0;
  size_t size = protocol->message(one, queue, payload, bytes), n = 0;
  chunk = window > 1 ? window / 2 : 1;
  frames = malloc(2 * chunk * (size + 16));
  if (protocol->join && chunk > 1)
    n = protocol->join(frames, one, size, chunk);
  else
    for (int i = 0; i < chunk; i++, n += size) memcpy(frames + n, one, size);
  memcpy(frames + n, frames, n);
  chunk_bytes = n;
}

// All chunks are equal, so bytes that did not fit are found again by offset.
static void send_within(int64_t most) {
  int64_t chunks = (window - (sent - producer.seen)) / chunk, left = (most - sent) / chunk;
  if (chunks > left) chunks = left;
  if (!owed && chunks > 0) {
    owed = chunks * chunk_bytes;
    sent += chunks * chunk;
  }
  while (owed) {
    ssize_t n = write(producer.fd, frames + at, owed < chunk_bytes ? owed : chunk_bytes);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) fail("write");
    owed -= n;
    at = owed ? (at + n) % chunk_bytes : 0;
  }
}

// Lets both sides do what they can: the consumer acknowledges what it has read at once.
static void take_part(void) {
  struct pollfd ready[2] = {{producer.fd, POLLIN | (owed ? POLLOUT : 0), 0},
                            {consumer.fd, POLLIN | (consumer.out_bytes ? POLLOUT : 0), 0}};
  int sides = consumer.fd ? 2 : 1;
  if (poll(ready, sides, 100) < 0) fail("poll");
  if (ready[0].revents & ~POLLOUT) take_bytes(&producer);
  flush(&producer);
  if (sides < 2) return;
  if (ready[1].revents & ~POLLOUT) take_bytes(&consumer);
  consumer.out_bytes += protocol->acknowledge(room(&consumer));
  flush(&consumer);
}

static int over(void) {
  return producer.seen == sent && !owed &&
         (!consumer.fd || (consumer.seen == sent && !consumer.out_bytes));
}

// Sends until then, or so many, and waits until all of it has arrived.
static void carry(double until, int64_t most) {
  double moved = now();
  int64_t last = -1;
  for (;;) {
    double time = now();
    if (time >= until) most = sent;
    send_within(most);
    if (sent >= most && over()) return;
    take_part();
    if (producer.seen + consumer.seen != last) last = producer.seen + consumer.seen, moved = time;
    if (consumer.seen > sent) give_up("a message came twice");
    if (time - moved > STALL_S) {
      fprintf(stderr, "of %lld messages %lld were stored and %lld came\n", (long long)sent,
              (long long)producer.seen, (long long)consumer.seen);
      exit(2);
    }
  }
}

static void report(double begun, double cpu_before, int64_t before) {
  double seconds = now() - begun;
  poll(NULL, 0, AFTERMATH_MS);  // what the last acknowledgements make the server do counts, too
  int64_t count = sent - before;
  printf("{\"messages\":%lld,\"messages_per_s\":%.1f,\"cpu_us_per_message\":%.4f}\n",
         (long long)count, count / seconds, (cpu() - cpu_before) / count * 1e6);
}

static void run(double warm_s, double seconds, int64_t most) {
  if (warm_s) carry(now() + warm_s, most);
  double begun = now(), cpu_before = cpu();
  int64_t before = sent;
  carry(begun + seconds, most);
  report(begun, cpu_before, before);
}

int main(int argc, char **argv) {
  int work = argc == 10 && !strcmp(argv[4], "work"), fill = argc == 9 && !strcmp(argv[4], "fill");
  if ((!work && !fill) || !(protocol = find_queue_protocol(argv[1])) ||
      atoi(argv[5]) > QUEUE_PAYLOAD_BYTES_MAX || atoi(argv[6]) > CREDIT_MAX) {
    fprintf(stderr, "usage: queue PROTOCOL PORTS NAME WORK ...; queue.c tells how\n");
    return 2;
  }
  char *second = strchr(argv[2], ',');
  queue = argv[3], window = atoi(argv[6]), pids = argv[argc - 1];
  dial(&producer, atoi(second ? second + 1 : argv[2]));
  if (work) dial(&consumer, atoi(argv[2]));
  prepare(atoi(argv[5]));
  if (work)
    run(atof(argv[7]), atof(argv[8]), INT64_MAX);
  else
    run(0, 1e9, atoll(argv[7]) / chunk * chunk);
  return 0;
}
