/// A value out of a JSON text, as far as vectors have a use for it.
enum JSONValue {
    case object([String: JSONValue])
    case array([JSONValue])
    case string(String)
    case bool(Bool)
    /// No member of a vector is a number.
    case number
    case null
}

/// A value that is not what should stand in its place.
struct JSONMisfit: Error {
    /// Where it stands: `vectors[12].messages[1].ciphertext`; empty for the whole text.
    private(set) var place = ""
    /// What is wrong there.
    let reason: String

    init(_ reason: String) { self.reason = reason }

    /// The same as seen from around the object that has it as member `name`.
    func within(member name: String) -> JSONMisfit {
        var outer = self
        outer.place = name + rest
        return outer
    }

    /// The same as seen from around the array that has it at `index`.
    func within(item index: Int) -> JSONMisfit {
        var outer = self
        outer.place = "[\(index)]" + rest
        return outer
    }

    /// The place as it goes on behind a name or an index.
    private var rest: String { place.isEmpty || place.hasPrefix("[") ? place : "." + place }
}

extension JSONValue {
    /// What `read` makes of the object's member `name`; nil where there is none, or `null`.
    func optional<Result>(
        _ name: String, _ read: (JSONValue) throws(JSONMisfit) -> Result
    ) throws(JSONMisfit) -> Result? {
        guard case .object(let members) = self else { throw JSONMisfit("not an object") }
        guard let member = members[name] else { return nil }
        if case .null = member { return nil }
        do throws(JSONMisfit) {
            return try read(member)
        } catch {
            throw error.within(member: name)
        }
    }

    /// What `read` makes of the object's member `name`.
    func required<Result>(
        _ name: String, _ read: (JSONValue) throws(JSONMisfit) -> Result
    ) throws(JSONMisfit) -> Result {
        if let result = try optional(name, read) { return result }
        guard case .object(let members) = self, members[name] != nil else {
            throw JSONMisfit("missing").within(member: name)
        }
        throw JSONMisfit("null").within(member: name)
    }

    /// What `read` makes of each of the array's items.
    func items<Result>(
        _ read: (JSONValue) throws(JSONMisfit) -> Result
    ) throws(JSONMisfit) -> [Result] {
        guard case .array(let items) = self else { throw JSONMisfit("not an array") }
        var results: [Result] = []
        results.reserveCapacity(items.count)
        for (index, item) in items.enumerated() {
            do throws(JSONMisfit) {
                results.append(try read(item))
            } catch {
                throw error.within(item: index)
            }
        }
        return results
    }

    /// The text.
    func text() throws(JSONMisfit) -> String {
        guard case .string(let text) = self else { throw JSONMisfit("not a text") }
        return text
    }

    /// The truth value.
    func truth() throws(JSONMisfit) -> Bool {
        guard case .bool(let truth) = self else { throw JSONMisfit("not true or false") }
        return truth
    }

    /// The bytes of a text of hexadecimal digits.
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
