// load: the same work for every server, on loopback.
//
//   load PROTOCOL PORTS fan|pairs CONNECTIONS PAYLOAD WINDOW WARM_S SECONDS PID[,PID...]
//   load PROTOCOL PORTS latency CONNECTIONS PAYLOAD PER_S WARM_S SECONDS PID[,PID...]
//   load PROTOCOL PORTS idle CONNECTIONS UNDER_WAY PID[,PID...]
//
// PORTS is one port, or two: where those who receive connect, and where those who send do; those who
// receive take turns where the first is several, as 7001+7002.
// fan: one publisher, CONNECTIONS subscribers of one topic. pairs: CONNECTIONS senders, each with a
// receiver of its own. Both are closed loops: at most WINDOW messages are under way per publisher,
// so nothing is dropped and a server is measured at the rate it sustains; where the protocol asks
// for an acknowledgement of each message, it is these that make room. latency: one publisher at a
// fixed rate, whatever has arrived by then. idle: open the connections, UNDER_WAY at a time, say so, answer heartbeats
// until standard input ends, and check that all of them are still there.
// Prints one line of JSON. The CPU time is that of the given server processes.
#define _GNU_SOURCE
#include "protocols.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 512, BUFFER_BYTES = 1 << 19, STALL_S = 20, QUIET_S = 2, SOURCES = 8, PORTS_MAX = 16 };

// Before the time in a payload; not to be found in any frame by chance.
#define STAMP "sent="

typedef struct {
  int fd, number, answers;
  Role role;
  int upgrading;
  unsigned char *rest;  // the beginning of a frame whose end has not come yet
  size_t rest_bytes;
  int64_t received;
  char *frames;  // senders: two equal chunks of messages
  int chunk;
  size_t chunk_bytes, owed, at;
  int64_t sent;
} Connection;

static const Protocol *protocol;
static int receiving_ports[PORTS_MAX], port_count, sending_port, poller, ready;
static int64_t delivered;
static uint32_t *latencies;  // microseconds; NULL when they are not asked for
static size_t latency_count, latency_max;
static unsigned char buffer[BUFFER_BYTES + REPLY_BYTES_MAX];

static void fail(const char *what) {
  perror(what);
  exit(2);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

// The CPU seconds of whole processes, to the nanosecond; /proc counts in hundredths of a second.
static double cpu_of(const char *pids) {
  double sum = 0;
  for (const char *at = pids; *at; at += strspn(at, ",")) {
    clockid_t clock;
    struct timespec t;
    pid_t pid = (pid_t)strtol(at, (char **)&at, 10);
    if (!clock_getcpuclockid(pid, &clock) && !clock_gettime(clock, &t))
      sum += t.tv_sec + t.tv_nsec * 1e-9;
    if (*at && *at != ',') break;
  }
  return sum;
}

static void say(Connection *c, const char *data, size_t bytes) {
  if (write(c->fd, data, bytes) != (ssize_t)bytes) fail("write");
}

static void greet(Connection *c) {
  char out[GREETING_BYTES_MAX];
  say(c, out, protocol->greet(out, c->role, c->number, &c->answers));
}

static int sends(Role role) { return role == PUBLISHER || role == SENDER; }

static void dial(Connection *c, Role role, int number) {
  int one = 1;
  *c = (Connection){.number = number, .role = role, .upgrading = protocol->upgrade != NULL};
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (c->fd < 0) fail("socket");
  // Several source addresses, so that many connections in a row do not run out of ports.
  setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
  struct sockaddr_in from = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK + number % SOURCES)};
  if (bind(c->fd, (void *)&from, sizeof from)) fail("bind");
  int receiving_port = receiving_ports[number % port_count];
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons(sends(role) ? sending_port : receiving_port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (connect(c->fd, (void *)&to, sizeof to)) fail("connect");
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  fcntl(c->fd, F_SETFL, O_NONBLOCK);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
  if (epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event)) fail("epoll_ctl");
  if (c->upgrading)
    say(c, protocol->upgrade, strlen(protocol->upgrade));
  else
    greet(c);
}

static void note_latency(const unsigned char *frame, size_t bytes) {
  const char *stamp = memmem(frame, bytes, STAMP, sizeof STAMP - 1);
  if (!stamp || latency_count >= latency_max) return;
  latencies[latency_count++] = (uint32_t)((now() - strtod(stamp + sizeof STAMP - 1, NULL)) * 1e6);
}

static void refuse(const unsigned char *frame, size_t bytes) {
  fputs("refused: ", stderr);
  for (size_t i = 0; i < bytes && i < 300; i++)
    fputc(frame[i] < ' ' || frame[i] > '~' ? '.' : frame[i], stderr);
  exit(2);
}

static void take_frame(Connection *c, Kind kind, int count, const unsigned char *frame,
                       size_t bytes) {
  if (kind == DELIVERY) {
    c->received += count;
    delivered += count;
    if (latencies) note_latency(frame, bytes);
  } else if (kind == ANSWER && c->answers) {
    if (!--c->answers) ready++;
  } else if (kind == ANSWER) {
    c->received++;
  } else if (kind == PING) {
    say(c, protocol->pong, protocol->pong_bytes);
  } else if (kind == REFUSAL) {
    refuse(frame, bytes);
  }
}

static size_t take_upgrade(Connection *c, const unsigned char *in, size_t bytes) {
  const unsigned char *end = memmem(in, bytes, "\r\n\r\n", 4);
  if (!end) return 0;
  if (memcmp(in, "HTTP/1.1 101", 12)) refuse(in, end - in);
  c->upgrading = 0;
  greet(c);
  return end + 4 - in;
}

static void take_bytes(Connection *c) {
  if (c->rest_bytes) memcpy(buffer, c->rest, c->rest_bytes);
  ssize_t n = read(c->fd, buffer + c->rest_bytes, BUFFER_BYTES);
  if (n < 0 && errno == EAGAIN) return;
  if (n <= 0) {
    fprintf(stderr, "the server closed connection %d\n", c->number);
    exit(2);
  }
  size_t at = 0, end = c->rest_bytes + n;
  while (at < end) {
    Kind kind = IGNORED;
    int count = 1;
    size_t bytes = c->upgrading ? take_upgrade(c, buffer + at, end - at)
                                : protocol->cut(buffer + at, end - at, &kind, &count);
    if (!bytes) break;
    take_frame(c, kind, count, buffer + at, bytes);
    at += bytes;
  }
  free(c->rest);
  c->rest = NULL;
  c->rest_bytes = end - at;
  if (!c->rest_bytes) return;
  if (c->rest_bytes > REPLY_BYTES_MAX) fail("a frame that does not end");
  c->rest = memcpy(malloc(c->rest_bytes), buffer + at, c->rest_bytes);
}

// Reads what has come; returns whether something other than a connection, such as a timer, has.
static int take_events(int timeout_ms) {
  struct epoll_event events[EVENTS];
  int other = 0, n = epoll_wait(poller, events, EVENTS, timeout_ms);
  for (int i = 0; i < n; i++) {
    if (events[i].data.ptr)
      take_bytes(events[i].data.ptr);
    else
      other = 1;
  }
  return other;
}

static void open_all(Connection *all, int count, int under_way, Role role) {
  double begun = now();
  int opened = 0, before = ready;
  while (ready - before < count) {
    while (opened < count && opened - (ready - before) < under_way) {
      dial(all + opened, role, opened);
      opened++;
    }
    take_events(100);
    if (now() - begun > 3 * STALL_S) {
      fprintf(stderr, "only %d of %d connections opened\n", ready - before, count);
      exit(2);
    }
  }
}

// Makes what is written at once: `chunk` messages, joined where the protocol can, and two of it.
static void prepare(Connection *c, const char *payload, size_t bytes, int chunk) {
  char one[PAYLOAD_BYTES_MAX + OVERHEAD_BYTES_MAX];
  size_t size = protocol->message(one, c->role, c->number, payload, bytes), n = 0;
  c->chunk = chunk;
  c->frames = realloc(c->frames, 2 * chunk * (size + 16));
  if (protocol->join && chunk > 1) {
    n = protocol->join(c->frames, one, size, chunk);
  } else {
    for (int i = 0; i < chunk; i++, n += size) memcpy(c->frames + n, one, size);
  }
  memcpy(c->frames + n, c->frames, n);
  c->chunk_bytes = n;
}

// Writes what is owed; all chunks are equal, so bytes that did not fit are found again by offset.
static void write_owed(Connection *c) {
  while (c->owed) {
    ssize_t n = write(c->fd, c->frames + c->at, c->owed);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) fail("write");
    c->owed -= n;
    c->at = c->owed ? (c->at + n) % c->chunk_bytes : 0;
  }
}

// Sends in halves of the window: a pipelining client writes several messages at once.
static void send_within(Connection *c, int64_t seen, int window) {
  int64_t chunks = (window - (c->sent - seen)) / c->chunk;
  if (!c->owed && chunks > 0) {
    c->owed = chunks * c->chunk_bytes;
    c->sent += chunks * c->chunk;
  }
  write_owed(c);
}

typedef struct {
  double begun, cpu, own_cpu;
  int64_t delivered;
} Mark;

static double own_cpu(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static Mark mark(const char *pids) {
  return (Mark){now(), cpu_of(pids), own_cpu(), delivered};
}

static void report(Mark from, const char *pids) {
  double seconds = now() - from.begun, cpu = cpu_of(pids) - from.cpu;
  int64_t count = delivered - from.delivered;
  printf("{\"deliveries\":%lld,\"deliveries_per_s\":%.1f,\"cpu_us_per_delivery\":%.4f", (long long)count,
         count / seconds, cpu / count * 1e6);
  // How busy the load itself was: near 1, it and not the server is what is measured.
  printf(",\"load_cores\":%.3f", (own_cpu() - from.own_cpu) / seconds);
}

static char *make_payload(size_t bytes) {
  char *payload = malloc(bytes + 1);
  memset(payload, 'x', bytes);
  payload[bytes] = 0;
  return payload;
}

static void run_closed_loop(int pairs, char **arg) {
  int count = atoi(arg[0]), bytes = atoi(arg[1]), window = atoi(arg[2]);
  double warm_s = atof(arg[3]), seconds = atof(arg[4]);
  int senders = pairs ? count : 1, chunk = window > 1 ? window / 2 : 1;
  Connection *in = calloc(count, sizeof *in), *out = calloc(senders, sizeof *out);
  open_all(in, count, 32, pairs ? RECEIVER : SUBSCRIBER);
  open_all(out, senders, 32, pairs ? SENDER : PUBLISHER);
  for (int i = 0; i < senders; i++) prepare(out + i, make_payload(bytes), bytes, chunk);
  double start = now(), moved = start, at = start;
  int64_t last = 0;
  Mark from = {0};
  for (; !from.begun || at - from.begun < seconds; at = now()) {
    for (int i = 0; i < senders; i++) {
      int64_t seen = pairs ? in[i].received : delivered / count;
      send_within(out + i, protocol->acknowledged ? out[i].received : seen, window);
    }
    take_events(1);
    if (!from.begun && at - start >= warm_s) from = mark(arg[5]);
    if (delivered != last) last = delivered, moved = at;
    if (at - moved > STALL_S) {
      fprintf(stderr, "nothing arrived for %d s\n", STALL_S);
      exit(2);
    }
  }
  report(from, arg[5]);
  puts("}");
}

static int by_value(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

static void report_latencies(Mark from, const char *pids, int64_t expected) {
  if (!latency_count) fail("no delivery");
  qsort(latencies, latency_count, sizeof *latencies, by_value);
  report(from, pids);
  printf(",\"expected\":%lld,\"p50_us\":%u,\"p99_us\":%u,\"max_us\":%u}\n", (long long)expected,
         latencies[latency_count / 2], latencies[latency_count * 99 / 100],
         latencies[latency_count - 1]);
}

static void send_stamped(Connection *c, char *payload, int bytes) {
  char stamp[32];
  memcpy(payload, stamp, snprintf(stamp, sizeof stamp, STAMP "%.7f,", now()));
  prepare(c, payload, bytes, 1);
  c->sent++, c->owed = c->chunk_bytes;
  write_owed(c);
}

static int start_timer(int per_s) {
  int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  struct itimerspec period = {{0, 1000000000 / per_s}, {0, 1000000000 / per_s}};
  timerfd_settime(timer, 0, &period, NULL);
  struct epoll_event event = {.events = EPOLLIN};
  epoll_ctl(poller, EPOLL_CTL_ADD, timer, &event);
  return timer;
}

// Sends `messages` at the timer's rate, those too that it was late for, and reads until all have
// arrived or nothing more does.
static void send_timed(Connection *out, int timer, char *payload, int bytes, int messages, int64_t all) {
  int64_t last = delivered, end = delivered + all, stop = out->sent + messages;
  uint64_t ticks, due = 0;
  for (double moved = now(); delivered < end;) {
    if (take_events(20) && read(timer, &ticks, sizeof ticks) > 0) due += ticks;
    if (out->owed) write_owed(out);
    for (; due && !out->owed && out->sent < stop; due--) send_stamped(out, payload, bytes);
    if (delivered != last || out->sent < stop) last = delivered, moved = now();
    if (now() - moved > QUIET_S) return;
  }
}

static void run_latency(char **arg) {
  int count = atoi(arg[0]), bytes = atoi(arg[1]), per_s = atoi(arg[2]);
  int warm = (int)(atof(arg[3]) * per_s), messages = (int)(atof(arg[4]) * per_s);
  Connection *in = calloc(count, sizeof *in), *out = calloc(1, sizeof *out);
  open_all(in, count, 32, SUBSCRIBER);
  open_all(out, 1, 1, PUBLISHER);
  char *payload = make_payload(bytes);
  latency_max = (size_t)count * messages;
  uint32_t *kept = calloc(latency_max, sizeof *kept);
  int timer = start_timer(per_s);
  send_timed(out, timer, payload, bytes, warm, (int64_t)count * warm);
  latencies = kept;
  Mark from = mark(arg[5]);
  send_timed(out, timer, payload, bytes, messages, (int64_t)count * messages);
  report_latencies(from, arg[5], (int64_t)count * messages);
}

static void run_idle(char **arg) {
  int count = atoi(arg[0]);
  Connection *all = calloc(count, sizeof *all);
  double begun = now(), cpu = cpu_of(arg[2]);
  open_all(all, count, atoi(arg[1]), IDLE);
  double seconds = now() - begun;
  printf("{\"connections\":%d,\"connects_per_s\":%.1f,\"cpu_us_per_connect\":%.2f}\n", count,
         count / seconds, (cpu_of(arg[2]) - cpu) / count * 1e6);
  fflush(stdout);
  struct epoll_event event = {.events = EPOLLIN};
  epoll_ctl(poller, EPOLL_CTL_ADD, STDIN_FILENO, &event);
  while (!take_events(-1)) {
  }
}

static void read_ports(char *text) {
  char *at = text;
  do receiving_ports[port_count++] = (int)strtol(at, &at, 10);
  while (*at++ == '+' && port_count < PORTS_MAX);
  sending_port = at[-1] == ',' ? atoi(at) : receiving_ports[0];
}

int main(int argc, char **argv) {
  if (argc < 7 || !(protocol = find_protocol(argv[1]))) {
    fprintf(stderr, "usage: load PROTOCOL PORTS WORK ...; load.c tells how\n");
    return 2;
  }
  read_ports(argv[2]);
  poller = epoll_create1(0);
  const char *work = argv[3];
  if (!strcmp(work, "idle"))
    run_idle(argv + 4);
  else if (argc == 10 && atoi(argv[5]) <= PAYLOAD_BYTES_MAX && !strcmp(work, "latency"))
    run_latency(argv + 4);
  else if (argc == 10 && atoi(argv[5]) <= PAYLOAD_BYTES_MAX)
    run_closed_loop(!strcmp(work, "pairs"), argv + 4);
  else
    return 2;
  return 0;
}
