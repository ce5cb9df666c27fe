internal import Glibc

/// Keeps the descriptors of standard input, output and error reserved.
enum StandardDescriptors {
    /// For each of the three that is closed, opens `/dev/null`: for writing as input, for reading
    /// as output or error, so that its use fails. Otherwise the next file or socket would get the
    /// number, and the channel's data would be written to that file or socket.
    static func claim() {
        for number in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO] where fcntl(number, F_GETFD) < 0
        {
            _ = unsafe open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY)
        }
    }
}
