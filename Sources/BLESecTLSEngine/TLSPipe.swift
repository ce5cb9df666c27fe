internal import CBLESecOpenSSL

/// Connects OpenSSL's input and output to the caller's buffers for the duration of one call.
///
/// While there is no output buffer, OpenSSL writes only handshake messages and alerts. The pipe
/// keeps them until `takeFlight()`.
@safe final class TLSPipe {
    /// The state. OpenSSL calls several callbacks for each record, and they access the state
    /// without reference counting or exclusivity checks.
    private let state: UnsafeMutablePointer<State>

    @safe fileprivate struct State {
        var input: UnsafePointer<UInt8>?
        var inputCount = 0
        var output: UnsafeMutablePointer<UInt8>?
        var room = 0
        var written = 0
        var flight: [UInt8] = []

        init() {
            unsafe input = nil
            unsafe output = nil
        }
    }

    init() {
        unsafe state = .allocate(capacity: 1)
        unsafe state.initialize(to: State())
    }

    deinit {
        unsafe state.deinitialize(count: 1)
        unsafe state.deallocate()
    }

    /// The number of input bytes that OpenSSL has not read yet.
    var inputCount: Int { unsafe state.pointee.inputCount }
    /// Whether handshake messages or an alert wait to be sent.
    var hasFlight: Bool { unsafe !state.pointee.flight.isEmpty }

    /// Adds bytes that are to be sent after what OpenSSL has written.
    func appendToFlight(_ bytes: [UInt8]) { unsafe state.pointee.flight += bytes }

    /// Makes a BIO (an OpenSSL source and sink) on this pipe. The pipe must outlive the BIO.
    func makeBIO() -> OpaquePointer? {
        guard let bio = unsafe BIO_new(Self.method.pointer) else { return nil }
        unsafe BIO_set_data(bio, state)
        unsafe BIO_set_init(bio, 1)
        return unsafe bio
    }

    /// Lets OpenSSL read `count` bytes from `start` while `body` runs.
    func reading<Result, Failure: Error>(
        _ start: UnsafePointer<UInt8>?, count: Int, _ body: () throws(Failure) -> Result
    ) throws(Failure) -> Result {
        unsafe state.pointee.input = start
        unsafe state.pointee.inputCount = count
        defer {
            unsafe state.pointee.input = nil
            unsafe state.pointee.inputCount = 0
        }
        return try body()
    }

    /// Lets OpenSSL write up to `room` bytes to `start` while `body` runs, and returns the number
    /// of bytes written.
    func writing<Failure: Error>(
        to start: UnsafeMutablePointer<UInt8>, room: Int, _ body: () throws(Failure) -> Void
    ) throws(Failure) -> Int {
        unsafe state.pointee.output = start
        unsafe state.pointee.room = room
        unsafe state.pointee.written = 0
        defer { unsafe state.pointee.output = nil }
        try body()
        return unsafe state.pointee.written
    }

    /// Removes and returns the handshake messages, or the alert, that wait to be sent.
    func takeFlight() -> [UInt8] {
        defer { unsafe state.pointee.flight = [] }
        return unsafe state.pointee.flight
    }

    // MARK: - OpenSSL's callbacks

    @safe private struct Method: @unchecked Sendable {
        // Unchecked: nothing changes OpenSSL's `BIO_METHOD` once it is made.
        let pointer: OpaquePointer?
    }

    private static let method: Method = {
        let method = unsafe BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "blesec")
        unsafe BIO_meth_set_read(method) { bio, buffer, count in
            unsafe blesec_bio_clear_retry(bio)
            guard let state = unsafe TLSPipe.state(of: bio), let buffer = unsafe buffer, count > 0
            else { return -1 }
            let taken = unsafe state.pointee.read(into: buffer, count: Int(count))
            guard taken > 0 else {
                unsafe blesec_bio_set_retry_read(bio)
                return -1
            }
            return Int32(taken)
        }
        unsafe BIO_meth_set_write(method) { bio, bytes, count in
            unsafe blesec_bio_clear_retry(bio)
            guard let state = unsafe TLSPipe.state(of: bio), count >= 0 else { return -1 }
            let bytes = unsafe UnsafeRawBufferPointer(start: bytes, count: Int(count))
            return unsafe state.pointee.write(bytes) ? count : -1
        }
        // A flush always succeeds, since written bytes need no flush; other commands are not
        // supported.
        unsafe BIO_meth_set_ctrl(method) { _, command, _, _ in command == BIO_CTRL_FLUSH ? 1 : 0 }
        return unsafe Method(pointer: method)
    }()

    private static func state(of bio: OpaquePointer?) -> UnsafeMutablePointer<State>? {
        unsafe BIO_get_data(bio)?.assumingMemoryBound(to: State.self)
    }
}

extension TLSPipe.State {
    fileprivate mutating func read(into buffer: UnsafeMutablePointer<CChar>, count: Int) -> Int {
        guard let source = unsafe input, inputCount > 0 else { return 0 }
        let taken = min(count, inputCount)
        unsafe UnsafeMutableRawPointer(buffer).copyMemory(from: source, byteCount: taken)
        unsafe input = source + taken
        inputCount -= taken
        return taken
    }

    fileprivate mutating func write(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard let target = unsafe output else {
            unsafe flight.append(contentsOf: bytes)
            return true
        }
        guard bytes.count <= room - written, let source = bytes.baseAddress else { return false }
        unsafe UnsafeMutableRawPointer(target + written).copyMemory(
            from: source, byteCount: bytes.count)
        written += bytes.count
        return true
    }
}
