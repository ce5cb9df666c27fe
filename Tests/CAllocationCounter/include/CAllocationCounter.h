#pragma once
#include <stdbool.h>
#include <stdint.h>

// Counts the heap allocations of the calling thread, for tests that require an exact number.
//
// Replaces malloc and its relatives in the whole process by functions that count a call, and then
// call the C library's function. Under a sanitizer, which has its own malloc, nothing is replaced
// and nothing is counted.

/// Whether allocations are counted in this build.
bool blesec_counts_allocations(void);

/// How many allocations this thread has made so far.
uint64_t blesec_allocations(void);
