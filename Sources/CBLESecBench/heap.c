#include "CBLESecBench.h"

#include <malloc.h>

void blesec_bench_keep_freed_memory(void) {
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
}

size_t blesec_bench_trimmed_heap(void) {
    malloc_trim(0);
    struct mallinfo2 heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
}
