import BLESecChannelCore
import Testing

@Suite("The negotiation transcript")
struct TranscriptTests {
    @Test(
        "moving a byte to the next field changes both ready values and the switch and fallback prologues"
    )
    func fieldBoundaries() {
        // The same four bytes, divided into the four fields in every possible way.
        var seen: Set<[UInt8]> = []
        var count = 0
        for first in 0...4 {
            for second in first...4 {
                for third in second...4 {
                    let bytes: [UInt8] = [1, 2, 3, 4]
                    var transcript = NegotiationTranscript(context: Array(bytes[third...]))
                    transcript.hello = Array(bytes[..<first])
                    transcript.early = Array(bytes[first..<second])
                    transcript.answer = Array(bytes[second..<third])
                    seen.insert(transcript.ready(from: .dialer))
                    seen.insert(transcript.ready(from: .acceptor))
                    seen.insert(transcript.prologue(for: .switch))
                    seen.insert(transcript.prologue(for: .fallback))
                    count += 4
                }
            }
        }
        #expect(seen.count == count)
    }

    @Test("a handshake has a different prologue after accept, fallback and switch")
    func labels() {
        let transcript = NegotiationTranscript(context: [])
        let prologues = Set(
            [Answer.Status.accept, .fallback, .switch].map { transcript.prologue(for: $0) })
        #expect(prologues.count == 3)
    }

    @Test("the two sides have different ready values")
    func roles() {
        let transcript = NegotiationTranscript(context: [5])
        #expect(transcript.ready(from: .dialer) != transcript.ready(from: .acceptor))
        #expect(transcript.ready(from: .dialer).count == Record.readyLength)
    }
}
