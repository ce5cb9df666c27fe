/// A value from a JSON text.
package enum JSONValue {
    case object([String: JSONValue])
    case array([JSONValue])
    case string(String)
    case bool(Bool)
    /// The nearest `Double`; infinite if the number in the text is too large for any.
    case number(Double)
    case null
}

/// The error for a value that does not have the expected type or content.
package struct JSONMisfit: Error {
    /// The value's path: `vectors[12].messages[1].ciphertext`; empty for the whole text.
    package private(set) var place = ""
    /// What is wrong with the value.
    package let reason: String

    package init(_ reason: String) { self.reason = reason }

    /// The same error, with the path extended by the enclosing object's member `name`.
    package func within(member name: String) -> JSONMisfit {
        var outer = self
        outer.place = name + rest
        return outer
    }

    /// The same error, with the path extended by the enclosing array's `index`.
    package func within(item index: Int) -> JSONMisfit {
        var outer = self
        outer.place = "[\(index)]" + rest
        return outer
    }

    /// The path as it continues after a name or an index.
    private var rest: String { place.isEmpty || place.hasPrefix("[") ? place : "." + place }
}

extension JSONValue {
    /// The result of `read` for the object's member `name`; nil if there is none, or if it is
    /// `null`.
    package func optional<Result>(
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

    /// The result of `read` for the object's member `name`.
    package func required<Result>(
        _ name: String, _ read: (JSONValue) throws(JSONMisfit) -> Result
    ) throws(JSONMisfit) -> Result {
        if let result = try optional(name, read) { return result }
        guard case .object(let members) = self, members[name] != nil else {
            throw JSONMisfit("missing").within(member: name)
        }
        throw JSONMisfit("null").within(member: name)
    }

    /// The results of `read` for the array's items.
    package func items<Result>(
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
        guard case .number(let number) = self, number.isFinite else {
            throw JSONMisfit("not a number")
        }
        return number
    }
}
