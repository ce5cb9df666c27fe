import BLESecPrimitives

//: the bytes of a secret are not read once it is wiped
func readWiped(_ secret: inout SecretBytes) -> UInt8 {
    let bytes = secret.span
    secret.wipe()  // error: overlapping accesses
    return bytes[0]
}

//: the bytes of a secret end with it
func readAfterSecretEnds() -> UInt8 {
    var bytes = Span<UInt8>()
    do {
        let secret = SecretBytes(randomCount: 32)
        bytes = secret.span  // error: lifetime-dependent
    }
    return bytes[0]
}

//: a secret is not written while it is read
func writeWhileReading(_ secret: inout SecretBytes) -> UInt8 {
    let bytes = secret.span
    var target = secret.mutableSpan  // error: overlapping accesses
    target[0] = 1
    return bytes[0]
}
