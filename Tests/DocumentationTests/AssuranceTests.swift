import FoundationEssentials
import Testing

/// Compares docs/assurance.md, which names tests for the statements of SECURITY.md, with
/// SECURITY.md and with the tests.
@Suite struct AssuranceTests {
    /// A row of the table.
    struct Row {
        /// Words from a sentence of SECURITY.md.
        let words: String
        /// Files below `Tests`, with names of tests in these files.
        let tests: [(file: String, name: String)]
        /// Files in the same column without the name of a test.
        let idle: [String]
        let note: String

        init?(_ line: Substring) {
            let cells = line.split(separator: "|", omittingEmptySubsequences: false)
            guard cells.count == 5, cells[0].isEmpty, cells[4].isEmpty,
                !cells[1].allSatisfy({ $0 == "-" }), !cells[1].contains("SECURITY.md says")
            else { return nil }
            words = String(cells[1]).trimmed
            note = String(cells[3]).trimmed
            var tests: [(String, String)] = []
            var idle: [String] = []
            for part in String(cells[2]).trimmed.split(separator: "; `") {
                // `FILE` "NAME", "NAME"
                let pieces = part.drop { $0 == "`" }.split(separator: "`", maxSplits: 1)
                let names = pieces.last.map { $0.split(separator: "\"") } ?? []
                let named = names.filter { !$0.allSatisfy { ", ".contains($0) } }
                if pieces.count < 2 || named.isEmpty { idle.append(String(part)) }
                for name in named where pieces.count == 2 {
                    tests.append((String(pieces[0]), String(name)))
                }
            }
            self.tests = tests
            self.idle = idle
        }

        /// All rows of the page.
        static func all() throws -> [Row] {
            try Page("docs/assurance.md").text.split(separator: "\n").compactMap { Row($0) }
        }
    }

    /// The sentences of SECURITY.md, without emphasis marks, each on one line.
    static func sentences() throws -> [String] {
        let page = try Page("SECURITY.md").text.replacing("\n- ", with: "\n\n- ")
        var isListOfLimits = false
        var sentences: [String] = []
        for block in page.components("\n\n") {
            if block.hasPrefix("#") {
                isListOfLimits = ["not protected", "a failure shows"].contains(
                    where: block.contains)
                continue
            }
            var text = block.oneLine
            if text.hasPrefix("- ") { text = String(text.dropFirst(2)) }
            // In these sections, bold text at the beginning is a title.
            if isListOfLimits, text.hasPrefix("**") {
                text = text.components("**").dropFirst(2).joined(separator: "**")
            }
            sentences += text.replacing("**", with: "").sentences
        }
        return sentences
    }

    @Test("every sentence of SECURITY.md has a row, and every row quotes words of a sentence")
    func sentencesHaveRows() throws {
        let rows = try Row.all()
        let sentences = try Self.sentences()
        #expect(rows.count > 60 && sentences.count > 60)
        for sentence in sentences {
            #expect(rows.contains { sentence.contains($0.words) }, "no row for: \(sentence)")
        }
        for row in rows {
            #expect(
                sentences.contains { $0.contains(row.words) }, "no sentence has: \(row.words)")
        }
    }

    @Test("every test that a row names exists, and a row without a test gives the reason")
    func testsExist() throws {
        for row in try Row.all() {
            #expect(
                !row.tests.isEmpty || !row.note.isEmpty, "neither test nor reason: \(row.words)")
            #expect(row.idle.isEmpty, "no test is named: \(row.idle)")
            for (file, name) in row.tests {
                let path = "Tests/" + file + (file.hasSuffix(".py") ? "" : ".swift")
                let text = try #require(try? Page(path).text, "\(path) is not there")
                let forms =
                    file.hasSuffix(".py")
                    ? ["\"\"\"\(name)\"\"\""]
                    : ["@Test(\"\(name)\"", "@Test( \"\(name)\"", "//: \(name)"]
                let line = file.hasPrefix("Misuse/") ? text : text.oneLine
                #expect(forms.contains(where: line.contains), "\(path) has no test: \(name)")
            }
        }
    }
}

extension String {
    fileprivate var trimmed: String {
        String(drop { $0 == " " }.reversed().drop { $0 == " " }.reversed())
    }

    /// The text with single spaces between its words.
    fileprivate var oneLine: String { split { $0 == " " || $0 == "\n" }.joined(separator: " ") }

    fileprivate func components(_ separator: String) -> [String] {
        split(separator: separator, omittingEmptySubsequences: false).map(String.init)
    }

    /// The sentences: each ends with a full stop or a colon before a capital letter or code.
    fileprivate var sentences: [String] {
        var sentences: [String] = []
        var sentence = ""
        let characters = Array(self)
        for (index, character) in characters.enumerated() {
            sentence.append(character)
            guard ".:".contains(character), index + 2 < characters.count,
                characters[index + 1] == " ",
                characters[index + 2].isUppercase || characters[index + 2] == "`"
            else { continue }
            sentences.append(sentence.trimmed)
            sentence = ""
        }
        return sentences + (sentence.trimmed.isEmpty ? [] : [sentence.trimmed])
    }
}
