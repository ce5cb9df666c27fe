// lab/late-reports.c: makes btvirt report advertisements as late as a radio would. btvirt loads it
// (LD_PRELOAD).
//
// btvirt writes its first report within a tenth of a millisecond after its answer to the command that
// starts a scan. The kernel drops reports until a worker thread has noted that the scan has started,
// which takes up to a millisecond in the laboratory. So without this delay the kernel dropped half of all
// reports; in two cases it dropped all reports of 30 scans in a row. A radio hears an advertisement
// milliseconds after the start at the earliest.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <sys/uio.h>
#include <time.h>

// Core specification, Vol 4, Part A, 2, and Part E, 7.7.14 and 7.7.65: an event's packet, the event that
// answers a command, the LE meta event, and its subevents with reports.
enum { EVENT = 0x04, COMMAND_COMPLETE = 0x0e, LE_META = 0x3e, REPORT = 0x02, EXTENDED_REPORT = 0x0d };
enum { DESCRIPTORS = 64 }; // Higher descriptors are not delayed.

// The least time between an answer and a report, in nanoseconds.
static const int64_t least_delay = 20 * 1000 * 1000;
// When each controller last answered a command, in nanoseconds, by the controller's descriptor. No lock is
// needed, because btvirt has one thread.
static int64_t answer_times[DESCRIPTORS];

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

ssize_t writev(int descriptor, const struct iovec *parts, int count) {
  static ssize_t (*real)(int, const struct iovec *, int);
  if (!real) real = (ssize_t (*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
  unsigned char head[4]; // the type of the packet, the event, its length, its subevent
  unsigned filled = 0;
  for (int part = 0; part < count; part++)
    for (size_t at = 0; at < parts[part].iov_len && filled < sizeof head; at++)
      head[filled++] = ((const unsigned char *)parts[part].iov_base)[at];
  if (filled == sizeof head && head[0] == EVENT && descriptor < DESCRIPTORS) {
    if (head[1] == COMMAND_COMPLETE) answer_times[descriptor] = now();
    if (head[1] == LE_META && (head[3] == REPORT || head[3] == EXTENDED_REPORT)) {
      int64_t remaining = answer_times[descriptor] + least_delay - now();
      if (remaining > 0) nanosleep(&(struct timespec){.tv_nsec = remaining}, 0);
    }
  }
  return real(descriptor, parts, count);
}
