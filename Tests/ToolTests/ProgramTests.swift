import BLESec
import Testing

@testable import BLESecToolKit

/// The arguments of the tools.
@Suite struct ProgramTests {
    @Test(
        "without any argument, not even the tool's name, the error says that /proc is not mounted")
    func noArguments() throws {
        #expect(try Program.words(of: ["blesec"]) == [])
        #expect(try Program.words(of: ["blesec", "keygen", "key"]) == ["keygen", "key"])
        let error = #expect(throws: ChannelError.self) { _ = try Program.words(of: []) }
        #expect(error?.reason == "the arguments cannot be read: /proc is not mounted")
        #expect(error.map { ExitStatus($0) } == .noInput)
    }
}
