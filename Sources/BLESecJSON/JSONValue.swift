/// A JSON value (RFC 8259), which ``JSONReader`` reads and ``JSONWriter`` writes.
package enum JSONValue: Sendable {
    /// The members in their order; each name occurs once.
    case object([(name: String, value: JSONValue)])
    case array([JSONValue])
    case string(String)
    case bool(Bool)
    /// A whole number, only for writing: ``JSONReader`` returns every number as a `real`.
    case number(Int)
    /// A number. ``JSONReader`` returns the nearest `Double`, or infinity if the number in the text
    /// is too large. ``JSONWriter`` rounds a number whose magnitude is 100,000 or more to a whole
    /// number, and any other to six significant digits and at most nine decimals. It writes
    /// infinity and NaN as `null`.
    case real(Double)
    case null
}

/// The error for a value that does not have the expected type or content.
package struct JSONMisfit: Error {
    /// The path to the value, such as `vectors[12].messages[1].ciphertext`; empty if the value is
    /// the whole text.
    package let place: String
    /// What is wrong with the value.
    package let reason: String

    package init(_ reason: String) { self.init(place: "", reason: reason) }

    private init(place: String, reason: String) {
        self.place = place
        self.reason = reason
    }

    /// This error with a longer path, which starts at the object whose member `name` contains the
    /// value.
    package func within(member name: String) -> JSONMisfit {
        JSONMisfit(place: name + suffix, reason: reason)
    }

    /// This error with a longer path, which starts at the array whose item `index` contains the
    /// value.
    package func within(item index: Int) -> JSONMisfit {
        JSONMisfit(place: "[\(index)]" + suffix, reason: reason)
    }

    /// The path in the form that can follow a name or an index.
    private var suffix: String { place.isEmpty || place.hasPrefix("[") ? place : "." + place }
}

extension JSONValue {
    /// The result of `read` for the object's member `name`; nil if the member is missing or `null`.
    package func optional<Result>(
        _ name: String, _ read: (JSONValue) throws(JSONMisfit) -> Result
    ) throws(JSONMisfit) -> Result? {
        guard let member = try member(name) else { return nil }
        if case .null = member { return nil }
        do throws(JSONMisfit) {
            return try read(member)
        } catch {
            throw error.within(member: name)
        }
    }

    /// The result of `read` for the object's member `name`.
    package func required<Result>(
        _ name: String, _ read: (JSONValue) throws(JSONMisfit) -> Result
    ) throws(JSONMisfit) -> Result {
        if let result = try optional(name, read) { return result }
        throw JSONMisfit(try member(name) == nil ? "missing" : "null").within(member: name)
    }

    private func member(_ name: String) throws(JSONMisfit) -> JSONValue? {
        guard case .object(let members) = self else { throw JSONMisfit("not an object") }
        return members.first { $0.name == name }?.value
    }

    /// The results of `read` for the array's items.
    package func items<Result>(
        _ read: (JSONValue) throws(JSONMisfit) -> Result
    ) throws(JSONMisfit) -> [Result] {
        guard case .array(let items) = self else { throw JSONMisfit("not an array") }
        return try items.enumerated().map { index, item throws(JSONMisfit) in
            do throws(JSONMisfit) {
                return try read(item)
            } catch {
                throw error.within(item: index)
            }
        }
    }

    /// The string that is the object's member `name`.
    package func text(_ name: String) throws(JSONMisfit) -> String {
        try required(name) { value throws(JSONMisfit) in try value.text() }
    }

    /// The finite number that is the object's member `name`.
    package func real(_ name: String) throws(JSONMisfit) -> Double {
        try required(name) { value throws(JSONMisfit) in try value.real() }
    }

    /// The results of `read` for the items of the array that is the object's member `name`.
    package func list<Result>(
        _ name: String, _ read: (JSONValue) throws(JSONMisfit) -> Result
    ) throws(JSONMisfit) -> [Result] {
        try required(name) { value throws(JSONMisfit) in try value.items(read) }
    }

    /// The value as a string.
    package func text() throws(JSONMisfit) -> String {
        guard case .string(let text) = self else { throw JSONMisfit("not a text") }
        return text
    }

    /// The value as a Boolean.
    package func truth() throws(JSONMisfit) -> Bool {
        guard case .bool(let truth) = self else { throw JSONMisfit("not true or false") }
        return truth
    }

    /// The value as a finite number.
    package func real() throws(JSONMisfit) -> Double {
        guard case .real(let number) = self, number.isFinite else {
            throw JSONMisfit("not a number")
        }
        return number
    }
}
