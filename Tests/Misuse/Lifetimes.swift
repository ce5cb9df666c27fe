import BLESecPrimitives

//: a span of a secret's bytes cannot be read after the secret is wiped
func readWiped(_ secret: inout SecretBytes) -> UInt8 {
    let bytes = secret.span
    secret.wipe()  // error: overlapping accesses
    return bytes[0]
}

//: a span of a secret's bytes cannot outlive the secret
func readAfterSecretEnds() -> UInt8 {
    var bytes = Span<UInt8>()
    do {
        let secret = SecretBytes(randomCount: 32)
        bytes = secret.span  // error: lifetime-dependent
    }
    return bytes[0]
}

//: a secret cannot be written while a span of its bytes is read
func writeWhileReading(_ secret: inout SecretBytes) -> UInt8 {
    let bytes = secret.span
    var target = secret.mutableSpan  // error: overlapping accesses
    target[0] = 1
    return bytes[0]
}
