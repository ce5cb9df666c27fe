/// The bytes for the hexadecimal digits in `text`; all other characters are ignored.
func hex(_ text: String) -> [UInt8] {
    var bytes: [UInt8] = []
    var high: UInt8?
    for character in text {
        guard let digit = character.hexDigitValue else { continue }
        if let first = high {
            bytes.append(first << 4 | UInt8(digit))
            high = nil
        } else {
            high = UInt8(digit)
        }
    }
    precondition(high == nil, "an odd number of digits")
    return bytes
}
