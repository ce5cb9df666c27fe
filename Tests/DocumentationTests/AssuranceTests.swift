import FoundationEssentials
import Testing

/// Compares docs/assurance.md, which names tests for the statements of SECURITY.md, with
/// SECURITY.md and with the tests.
@Suite struct AssuranceTests {
    /// A row of a table: what SECURITY.md says, the tests that show it, and a note.
    struct Row {
        /// Words from a sentence of SECURITY.md.
        let quote: String
        /// The named tests, each with its file's path below `Tests`; a Swift file's path has no
        /// `.swift`.
        let tests: [(file: String, name: String)]
        /// The entries in the second cell that do not name both a file and a test.
        let entriesWithoutTest: [String]
        /// The last column, which gives the reason if the row names no test.
        let note: String

        init?(_ line: Substring) {
            let cells = line.split(separator: "|", omittingEmptySubsequences: false)
            guard cells.count == 5, cells[0].isEmpty, cells[4].isEmpty,
                !cells[1].allSatisfy({ $0 == "-" }), !cells[1].contains("SECURITY.md says")
            else { return nil }
            quote = String(cells[1]).trimmed
            note = String(cells[3]).trimmed
            var tests: [(String, String)] = []
            var entriesWithoutTest: [String] = []
            for entry in String(cells[2]).trimmed.split(separator: "; `") {
                // An entry has the form: `FILE` "NAME", "NAME"
                let pieces = entry.drop { $0 == "`" }.split(separator: "`", maxSplits: 1)
                let texts = pieces.last.map { $0.split(separator: "\"") } ?? []
                let names = texts.filter { !$0.allSatisfy { ", ".contains($0) } }
                if pieces.count < 2 || names.isEmpty { entriesWithoutTest.append(String(entry)) }
                for name in names where pieces.count == 2 {
                    tests.append((String(pieces[0]), String(name)))
                }
            }
            self.tests = tests
            self.entriesWithoutTest = entriesWithoutTest
        }

        /// All rows of the page.
        static func all() throws -> [Row] {
            try Page("docs/assurance.md").text.split(separator: "\n").compactMap { Row($0) }
        }
    }

    /// The sentences of SECURITY.md without headings and emphasis marks, each on one line.
    static func sentences() throws -> [String] {
        let page = try Page("SECURITY.md").text.replacing("\n- ", with: "\n\n- ")
        var hasTitles = false
        var sentences: [String] = []
        for block in page.components("\n\n") {
            if block.hasPrefix("#") {
                hasTitles = ["not protected", "a failure shows"].contains(
                    where: block.contains)
                continue
            }
            var text = block.oneLine
            if text.hasPrefix("- ") { text = String(text.dropFirst(2)) }
            // Under some headings, bold text at the beginning of a block is a title, and not a
            // sentence.
            if hasTitles, text.hasPrefix("**") {
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
            #expect(rows.contains { sentence.contains($0.quote) }, "no row for: \(sentence)")
        }
        for row in rows {
            #expect(
                sentences.contains { $0.contains(row.quote) }, "no sentence has: \(row.quote)")
        }
    }

    @Test("every test that a row names exists, and a row without a test gives the reason")
    func testsExist() throws {
        for row in try Row.all() {
            #expect(
                !row.tests.isEmpty || !row.note.isEmpty, "neither test nor reason: \(row.quote)")
            #expect(row.entriesWithoutTest.isEmpty, "no test is named: \(row.entriesWithoutTest)")
            for (file, name) in row.tests {
                let path = "Tests/" + file + (file.hasSuffix(".py") ? "" : ".swift")
                let text = try #require(try? Page(path).text, "\(path) is not there")
                let forms =
                    file.hasSuffix(".py")
                    ? ["\"\"\"\(name)\"\"\""]
                    : ["@Test(\"\(name)\"", "@Test( \"\(name)\"", "//: \(name)\n"]
                // In Misuse, a name is on one line. In other files, a line break may precede it.
                let searched = file.hasPrefix("Misuse/") ? text : text.oneLine
                #expect(forms.contains(where: searched.contains), "\(path) has no test: \(name)")
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
