#define _XOPEN_SOURCE 700
#include "CBLESecBench.h"
#include <ftw.h>
#include <stdio.h>

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place) {
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

void blesec_bench_remove(const char *folder) { nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS); }
