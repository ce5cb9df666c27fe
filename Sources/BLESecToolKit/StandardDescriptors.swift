internal import Glibc

/// Standard input, output and error as places that nothing else takes.
package enum StandardDescriptors {
    /// Puts something that fails where one of the three is closed. Otherwise the next file or socket
    /// would get its number, and the channel's own bytes would be piped into it.
    package static func claim() {
        for number in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO] where fcntl(number, F_GETFD) < 0
        {
            // The wrong way round, so that reading and writing fail.
            _ = unsafe open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY)
        }
    }
}
