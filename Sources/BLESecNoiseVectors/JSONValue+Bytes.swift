internal import BLESecJSON

extension JSONValue {
    /// The bytes of a string of hexadecimal digits.
    func bytes() throws(JSONMisfit) -> [UInt8] {
        let text = try text()
        guard text.utf8.count.isMultiple(of: 2) else {
            throw JSONMisfit("an odd number of hexadecimal digits")
        }
        guard let bytes = [UInt8](hex: text) else {
            throw JSONMisfit("a character that is no hexadecimal digit")
        }
        return bytes
    }
}
