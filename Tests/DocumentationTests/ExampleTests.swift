import TestSupport
import Testing

/// The example that README.md and the library's page show is a program of this package.
@Suite struct ExampleTests {
    @Test(
        "the example on the page is the program that is built, to the letter",
        arguments: ["README.md", "Sources/BLESec/BLESec.docc/BLESec.md"])
    func same(_ page: String) throws {
        let program = try Page("Examples/Greeting/main.swift").text
        #expect(try Page(page).blocks("swift").contains(program))
    }

    @Test("the example is fifteen lines")
    func length() throws {
        let program = try Page("Examples/Greeting/main.swift").text
        #expect(program.split(separator: "\n", omittingEmptySubsequences: false).count == 15 + 1)
    }

    @Test("the example runs, and says hello over a channel")
    func runs() throws {
        let folder = ScratchFolder()
        let outcome = try Subprocess.run(
            // The leak checker cannot follow weak references, and the loop lives when this ends.
            "env", ["-C", folder.path, Program.path("Greeting")],
            environment: ["ASAN_OPTIONS": "detect_leaks=0"], within: 60)
        #expect(outcome.status == 0, "\(outcome.errors)")
        #expect(outcome.text.hasPrefix("hello, SHA256:"))
        #expect(outcome.text.count == "hello, SHA256:".count + 43 + 1)
    }
}
