package import BLESecChannelCore
package import BLESecJSON
internal import BLESecLocking
internal import Glibc

/// Standard output: every byte is written, or an error is thrown.
package enum StandardOutput {
    package static func print(_ text: String) throws(ChannelError) { try write(Array(text.utf8)) }

    /// Writes all of `bytes` to any descriptor, by default standard output, and waits for the
    /// reader if necessary.
    ///
    /// - Parameter name: the name of the descriptor's file, for the error.
    /// - Throws: `input-output`, for a full disk or a closed pipe.
    package static func write(
        _ bytes: [UInt8], to descriptor: Int32 = STDOUT_FILENO, named name: String = "the file"
    ) throws(ChannelError) {
        var done = 0
        while done < bytes.count {
            let count = unsafe bytes.withUnsafeBytes {
                unsafe Glibc.write(
                    descriptor, UnsafeRawBufferPointer(rebasing: $0[done...]).baseAddress,
                    $0.count - done)
            }
            if count > 0 {
                done += count
            } else if count < 0, errno == EAGAIN {
                // Another process, which shares the open file, has set O_NONBLOCK.
                var entry = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                _ = unsafe poll(&entry, 1, -1)
            } else if count < 0, errno != EINTR {
                throw failure(errno, ofFile: descriptor == STDOUT_FILENO ? nil : name)
            }
        }
    }

    /// Prints one line: `text`, in which control characters are replaced, or an object if `--json`
    /// was given.
    package static func print(
        line text: @autoclosure () -> String, or members: [(String, JSONValue)]
    ) throws(ChannelError) {
        let isJSON = Diagnostics.isJSON
        try print((isJSON ? JSONWriter.line(.object(members)) : Diagnostics.oneLine(text())) + "\n")
    }

    /// Prints names and values, one pair on each line; with `--json`, one object with these and the
    /// `further` members.
    package static func print(
        _ fields: [(name: String, value: String)], further: [(String, JSONValue)] = []
    ) throws(ChannelError) {
        guard !Diagnostics.isJSON else {
            return try print(
                line: "", or: fields.map { ($0.name, JSONValue.string($0.value)) } + further)
        }
        try print(fields.map { "\($0.name): \(Diagnostics.oneLine($0.value))\n" }.joined())
    }

    /// Writes all of `bytes` without blocking the caller's thread.
    package static func send(_ bytes: [UInt8]) async throws(ChannelError) {
        try await onThread { () throws(ChannelError) in try write(bytes) }
    }

    /// Closes standard output, so that its reader sees the end; later writes are discarded.
    ///
    /// - Throws: `input-output`, when earlier writes fail only at this point.
    package static func finish() async throws(ChannelError) {
        try await onThread { () throws(ChannelError) in
            let devNull = unsafe open("/dev/null", O_WRONLY | O_CLOEXEC)
            let copy = dup(STDOUT_FILENO)
            defer { close(devNull) }
            // Closing the copy reports errors of delayed writes; `dup2` does not report them.
            guard devNull >= 0, copy >= 0, dup2(devNull, STDOUT_FILENO) >= 0, close(copy) == 0
            else { throw failure(errno) }
        }
    }

    private static let thread = BlockingThread.required()

    private static func onThread(
        _ body: @escaping @Sendable () throws(ChannelError) -> Void
    ) async throws(ChannelError) {
        let result: Result<Void, ChannelError> = await withCheckedContinuation { waiter in
            thread.perform { waiter.resume(returning: Result(catching: body)) }
        }
        try result.get()
    }

    /// The error of a failed write or close of the file `name`; nil means standard output.
    private static func failure(_ number: Int32, ofFile name: String? = nil) -> ChannelError {
        if let name { return .system(.inputOutput, "\(name) cannot be written", number) }
        guard number == EPIPE else {
            return .system(.inputOutput, "standard output cannot be written", number)
        }
        return ChannelError(
            .inputOutput, "standard output was closed by its reader; what came after that is lost",
            underlying: .errno(number))
    }
}
