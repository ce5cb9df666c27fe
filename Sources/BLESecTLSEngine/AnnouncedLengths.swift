/// Reads the lengths that handshake messages announce in their headers (RFC 8446 §4), in records
/// that are not encrypted. A header may be spread over several records.
struct AnnouncedLengths {
    /// The header's bytes that have come, as one big-endian number.
    private var header: UInt32 = 0
    private var headerCount = 0
    /// How many bytes of the present message's body have not come.
    private var missingCount = 0

    /// Whether no message that begins in the next record's fragment announces a body of more than
    /// ``TLSContext/longestMessage`` bytes.
    mutating func areAccepted(_ fragment: some Collection<UInt8>) -> Bool {
        var rest = fragment[...]
        while let byte = rest.first {
            guard missingCount == 0 else {
                let count = min(missingCount, rest.count)
                missingCount -= count
                rest = rest.dropFirst(count)
                continue
            }
            rest = rest.dropFirst()
            header = header << 8 | UInt32(byte)
            headerCount += 1
            guard headerCount == CertificateMessage.headerLength else { continue }
            missingCount = Int(header & 0xFF_FFFF)
            headerCount = 0
            guard missingCount <= TLSContext.longestMessage else { return false }
        }
        return true
    }
}
