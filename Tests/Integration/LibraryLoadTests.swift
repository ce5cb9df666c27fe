import Glibc
import TestSupport
import Testing

extension Integration {
    /// The tool on a system where libsystemd cannot be loaded. The tool loads libsystemd only when
    /// it needs bluetoothd.
    @Suite struct LibraryLoadTests {
        private let folder = ScratchFolder()

        /// Runs the tool so that the loader finds another file under the name of libsystemd: an
        /// empty file or, if `isLibrary`, a library without functions.
        private func run(_ command: String, isLibrary: Bool) throws -> Subprocess.Outcome {
            let file = folder.file("libsystemd.so.0")
            let made =
                isLibrary
                ? try Subprocess.run("cc", ["-shared", "-o", file, "-x", "c", "/dev/null"])
                : try Subprocess.run("touch", [file])
            try #require(made.status == 0, "\(made.errors)")
            let inherited = unsafe getenv("LD_LIBRARY_PATH").map {
                unsafe ":" + String(cString: $0)
            }
            return try Subprocess.run(
                Tool.path, [command],
                environment: ["LD_LIBRARY_PATH": folder.path + (inherited ?? "")])
        }

        @Test("scan fails, and its error has the remedy", arguments: [false, true])
        func scan(isLibrary: Bool) throws {
            Tool.expect(
                try run("scan", isLibrary: isLibrary), status: 68,
                "blesec: libsystemd.so.0 cannot be loaded: install libsystemd0\n")
        }

        @Test(
            "doctor reports the remedy and the loader's message",
            arguments: [(false, "file too short"), (true, "undefined symbol: sd_bus_open_system")])
        func doctor(isLibrary: Bool, _ message: String) throws {
            let outcome = try run("doctor", isLibrary: isLibrary)
            #expect(outcome.status == 68)
            let line = outcome.text.split(separator: "\n").first { $0.contains(" bluetoothd: ") }
            let found = try #require(line, "\(outcome.text)")
            let start = "bad   bluetoothd: libsystemd.so.0 cannot be loaded: install libsystemd0 ("
            #expect(found.hasPrefix(start), "\(found)")
            #expect(found.contains("libsystemd.so.0: \(message)); listening"), "\(found)")
        }
    }
}
