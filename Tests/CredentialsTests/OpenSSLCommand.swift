import TestSupport
import Testing

/// Runs the real `openssl`, which must succeed, and returns its output.
func openssl(_ arguments: String..., input: [UInt8] = []) throws -> String {
    let outcome = try Subprocess.run("openssl", arguments, input: .bytes(input))
    try #require(outcome.status == 0, "openssl \(arguments): \(outcome.errors)")
    return outcome.text
}
