#include "CBLESecSDBus.h"
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#define LIBRARY "libsystemd.so.0"

// Defines each function `blesec_NAME`, which calls libsystemd's NAME. If a prototype in the list
// differs from libsystemd's header, the compiler reports an error here.
#define DEFINE(result, name, parameters, arguments) \
    static __typeof__(name) *library_##name; \
    result blesec_##name parameters { return library_##name arguments; }
BLESEC_SD_BUS_FUNCTIONS(DEFINE)

const char *blesec_sd_bus_load(void) {
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) return dlerror();
#define FIND(result, name, parameters, arguments) \
    library_##name = (__typeof__(name) *)dlsym(library, #name); \
    if (!library_##name) return dlerror();
    BLESEC_SD_BUS_FUNCTIONS(FIND)
    return NULL;
}

// An ELF note that names the library. Packaging tools read it to learn what a program loads at run
// time: https://uapi-group.org/specifications/specs/elf_dlopen_metadata
#define NOTE \
    "[{\"soname\":[\"" LIBRARY "\"],\"feature\":\"bluetoothd\"," \
    "\"description\":\"Finds peers through bluetoothd\",\"priority\":\"recommended\"}]"
__attribute__((used, retain, section(".note.dlopen"), aligned(4))) static const struct {
    uint32_t name_size, size, type;
    char name[4];
    char text[(sizeof NOTE + 3) / 4 * 4];
} note = {4, sizeof NOTE, 0x407c0c0a, "FDO", NOTE};
