#pragma once
#include <stdbool.h>
#include <stdint.h>

// Counts the heap allocations of the calling thread, for tests that promise an exact number.
//
// The process's malloc family is replaced by counting functions over the C library's own. Under a
// sanitizer, which has a malloc of its own, nothing is replaced and nothing is counted.

/// Whether allocations are counted in this build.
bool blesec_counts_allocations(void);

/// How many allocations this thread has made so far.
uint64_t blesec_allocations(void);
