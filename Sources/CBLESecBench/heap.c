#include "CBLESecBench.h"

#include <malloc.h>

size_t blesec_bench_trimmed_heap(void) {
    malloc_trim(0);
    struct mallinfo2 heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
}
