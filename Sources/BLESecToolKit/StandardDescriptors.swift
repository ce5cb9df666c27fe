internal import Glibc

/// Keeps the descriptors of standard input, output and error reserved.
enum StandardDescriptors {
    /// Makes each use of a closed standard descriptor fail: opens `/dev/null` in place of it,
    /// standard input only for writing, the others only for reading. Otherwise the next file or
    /// socket that is opened would get the free number, and the channel's data would be written to
    /// this file or socket.
    static func claim() {
        for number in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO] where fcntl(number, F_GETFD) < 0
        {
            _ = unsafe open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY)
        }
    }
}
