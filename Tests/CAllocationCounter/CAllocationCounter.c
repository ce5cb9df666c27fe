#include "CAllocationCounter.h"
#include <errno.h>
#include <stddef.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BLESEC_SANITIZED 1
#endif
#endif

#ifdef BLESEC_SANITIZED

bool blesec_counts_allocations(void) { return false; }
uint64_t blesec_allocations(void) { return 0; }

#else

// With the initial-exec model, access to the variable never allocates. Otherwise malloc could call
// itself.
static __thread uint64_t count __attribute__((tls_model("initial-exec")));

bool blesec_counts_allocations(void) { return true; }
uint64_t blesec_allocations(void) { return count; }

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t items, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size) {
    count++;
    return __libc_malloc(size);
}

void *calloc(size_t items, size_t size) {
    count++;
    return __libc_calloc(items, size);
}

void *realloc(void *memory, size_t size) {
    count++;
    return __libc_realloc(memory, size);
}

void *memalign(size_t alignment, size_t size) {
    count++;
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    count++;
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
    count++;
    void *result = __libc_memalign(alignment, size);
    if (result == NULL) return ENOMEM;
    *memory = result;
    return 0;
}

#endif
