import Glibc
import TestSupport
import Testing

extension Integration {
    /// `blesec send` when there is nothing to send.
    @Suite struct SendCommandTests {
        @Test(
            "send fails at once if an operand is neither a file nor a folder, or has a name that cannot be sent",
            arguments: [
                (["/dev/null"], 66, "/dev/null is no file or folder that can be read"),
                (["pipe"], 66, "pipe is no file or folder that can be read"),
                (["file", "pipe"], 66, "pipe is no file or folder that can be read"),
                (["missing"], 66, "missing is no file or folder that can be read"),
                (["/"], 69, "/: the name cannot be sent"),
            ] as [([String], Int32, String)])
        func nothingToSend(_ operands: [String], _ status: Int32, _ reason: String) throws {
            let pair = try ToolPair()
            pair.folder.write("file", "x")
            try #require(unsafe mkfifo(pair.folder.file("pipe"), 0o600) == 0)
            let paths = operands.map { $0.hasPrefix("/") ? $0 : pair.folder.file($0) }
            let outcome = try Tool.start(
                ["send", pair.endpoint()] + paths + [
                    "--identity", pair.folder.file("dialer"), "--peer", pair.listenerKey,
                    "--timeout", "10",
                ]
            ).wait()
            #expect(outcome.status == status, "\(outcome.errors)")
            #expect(outcome.errors.hasSuffix("\(reason)\n"), "\(outcome.errors)")
            #expect(outcome.errors.split(separator: reason).count == 2, "\(outcome.errors)")
        }
    }
}
