internal import Glibc

/// Keeps the descriptors of standard input, output and error reserved.
package enum StandardDescriptors {
    /// Opens a descriptor that fails for each of the three that is closed. Otherwise the next file
    /// or socket would get its number, and the channel's data would be written to it.
    package static func claim() {
        for number in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO] where fcntl(number, F_GETFD) < 0
        {
            // Opened for the wrong direction, so that reading and writing fail.
            _ = unsafe open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY)
        }
    }
}
