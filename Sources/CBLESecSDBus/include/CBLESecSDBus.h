#pragma once
#include <systemd/sd-bus.h>

/// Loads libsystemd. Call this once before any other function of this header. Since libsystemd is
/// loaded only here, a program that does not use bluetoothd starts without libsystemd and the
/// libraries that libsystemd needs.
///
/// Returns NULL, or the message of dlerror if the library or one of its functions is missing. The
/// message is valid until this thread's next call of dlopen, dlsym or dlclose.
const char *blesec_sd_bus_load(void);

// The functions of sd-bus that blesec calls: result, name, parameters, arguments.
#define BLESEC_SD_BUS_FUNCTIONS(EACH) \
    EACH(int, sd_bus_open_system, (sd_bus **bus), (bus)) \
    EACH(sd_bus *, sd_bus_unref, (sd_bus *bus), (bus)) \
    EACH(sd_bus *, sd_bus_close_unref, (sd_bus *bus), (bus)) \
    EACH(int, sd_bus_get_fd, (sd_bus *bus), (bus)) \
    EACH(int, sd_bus_get_events, (sd_bus *bus), (bus)) \
    EACH(int, sd_bus_get_timeout, (sd_bus *bus, uint64_t *microseconds), (bus, microseconds)) \
    EACH(int, sd_bus_process, (sd_bus *bus, sd_bus_message **message), (bus, message)) \
    EACH(int, sd_bus_send, (sd_bus *bus, sd_bus_message *message, uint64_t *cookie), \
         (bus, message, cookie)) \
    EACH(int, sd_bus_add_filter, \
         (sd_bus *bus, sd_bus_slot **slot, sd_bus_message_handler_t handler, void *userdata), \
         (bus, slot, handler, userdata)) \
    EACH(int, sd_bus_message_new_signal, \
         (sd_bus *bus, sd_bus_message **message, const char *path, const char *interface, \
          const char *member), \
         (bus, message, path, interface, member)) \
    EACH(int, sd_bus_message_new_method_call, \
         (sd_bus *bus, sd_bus_message **message, const char *destination, const char *path, \
          const char *interface, const char *member), \
         (bus, message, destination, path, interface, member)) \
    EACH(int, sd_bus_message_new_method_return, (sd_bus_message *call, sd_bus_message **message), \
         (call, message)) \
    EACH(int, sd_bus_message_new_method_error, \
         (sd_bus_message *call, sd_bus_message **message, const sd_bus_error *error), \
         (call, message, error)) \
    EACH(sd_bus_message *, sd_bus_message_ref, (sd_bus_message *message), (message)) \
    EACH(sd_bus_message *, sd_bus_message_unref, (sd_bus_message *message), (message)) \
    EACH(int, sd_bus_message_get_type, (sd_bus_message *message, uint8_t *type), (message, type)) \
    EACH(int, sd_bus_message_get_reply_cookie, (sd_bus_message *message, uint64_t *cookie), \
         (message, cookie)) \
    EACH(const char *, sd_bus_message_get_path, (sd_bus_message *message), (message)) \
    EACH(const char *, sd_bus_message_get_interface, (sd_bus_message *message), (message)) \
    EACH(const char *, sd_bus_message_get_member, (sd_bus_message *message), (message)) \
    EACH(const char *, sd_bus_message_get_sender, (sd_bus_message *message), (message)) \
    EACH(const sd_bus_error *, sd_bus_message_get_error, (sd_bus_message *message), (message)) \
    EACH(int, sd_bus_message_append_basic, \
         (sd_bus_message *message, char type, const void *value), (message, type, value)) \
    EACH(int, sd_bus_message_append_array, \
         (sd_bus_message *message, char type, const void *values, size_t size), \
         (message, type, values, size)) \
    EACH(int, sd_bus_message_open_container, \
         (sd_bus_message *message, char type, const char *contents), (message, type, contents)) \
    EACH(int, sd_bus_message_close_container, (sd_bus_message *message), (message)) \
    EACH(int, sd_bus_message_enter_container, \
         (sd_bus_message *message, char type, const char *contents), (message, type, contents)) \
    EACH(int, sd_bus_message_exit_container, (sd_bus_message *message), (message)) \
    EACH(int, sd_bus_message_peek_type, \
         (sd_bus_message *message, char *type, const char **contents), (message, type, contents)) \
    EACH(int, sd_bus_message_read_basic, (sd_bus_message *message, char type, void *value), \
         (message, type, value)) \
    EACH(int, sd_bus_message_read_array, \
         (sd_bus_message *message, char type, const void **values, size_t *size), \
         (message, type, values, size)) \
    EACH(int, sd_bus_message_rewind, (sd_bus_message *message, int complete), (message, complete))

/// Declares each function with the prefix `blesec_`, so that the names do not collide in an app that
/// is linked with libsystemd itself.
#define BLESEC_SD_BUS_DECLARE(result, name, parameters, arguments) \
    __typeof__(name) blesec_##name;
BLESEC_SD_BUS_FUNCTIONS(BLESEC_SD_BUS_DECLARE)
