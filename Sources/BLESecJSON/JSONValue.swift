/// A value out of a JSON text.
package enum JSONValue {
    case object([String: JSONValue])
    case array([JSONValue])
    case string(String)
    case bool(Bool)
    /// The nearest that there is; infinite when the text's number is beyond all of them.
    case number(Double)
    case null
}

/// A value that is not what should stand in its place.
package struct JSONMisfit: Error {
    /// Where it stands: `vectors[12].messages[1].ciphertext`; empty for the whole text.
    package private(set) var place = ""
    /// What is wrong there.
    package let reason: String

    package init(_ reason: String) { self.reason = reason }

    /// The same as seen from around the object that has it as member `name`.
    package func within(member name: String) -> JSONMisfit {
        var outer = self
        outer.place = name + rest
        return outer
    }

    /// The same as seen from around the array that has it at `index`.
    package func within(item index: Int) -> JSONMisfit {
        var outer = self
        outer.place = "[\(index)]" + rest
        return outer
    }

    /// The place as it goes on behind a name or an index.
    private var rest: String { place.isEmpty || place.hasPrefix("[") ? place : "." + place }
}

extension JSONValue {
    /// What `read` makes of the object's member `name`; nil where there is none, or `null`.
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

    /// What `read` makes of the object's member `name`.
    package func required<Result>(
        _ name: String, _ read: (JSONValue) throws(JSONMisfit) -> Result
    ) throws(JSONMisfit) -> Result {
        if let result = try optional(name, read) { return result }
        guard case .object(let members) = self, members[name] != nil else {
            throw JSONMisfit("missing").within(member: name)
        }
        throw JSONMisfit("null").within(member: name)
    }

    /// What `read` makes of each of the array's items.
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

    /// The text.
    package func text() throws(JSONMisfit) -> String {
        guard case .string(let text) = self else { throw JSONMisfit("not a text") }
        return text
    }

    /// The truth value.
    package func truth() throws(JSONMisfit) -> Bool {
        guard case .bool(let truth) = self else { throw JSONMisfit("not true or false") }
        return truth
    }

    /// The number, if it is a finite one.
    package func real() throws(JSONMisfit) -> Double {
        guard case .number(let number) = self, number.isFinite else {
            throw JSONMisfit("not a number")
        }
        return number
    }
}
