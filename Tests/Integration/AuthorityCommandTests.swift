import Glibc
import TestSupport
import Testing

extension Integration {
    /// `blesec ca`, whose files are also read by `openssl`.
    @Suite struct AuthorityCommandTests {
        let folder = ScratchFolder()

        private var directory: String { folder.file("ca") }

        private func run(_ arguments: String...) throws -> Subprocess.Outcome {
            try Tool.run(arguments: ["ca"] + arguments)
        }

        /// Runs a command that must succeed, and returns its output by label: each line is
        /// `LABEL: VALUE`.
        private func fields(_ arguments: String...) throws -> [String: String] {
            let outcome = try Tool.run(arguments: ["ca"] + arguments)
            try #require(outcome.status == 0, "\(outcome.errors)")
            #expect(outcome.errors == "")
            var fields: [String: String] = [:]
            for line in outcome.text.split(separator: "\n") {
                let parts = line.split(separator: ":", maxSplits: 1)
                fields[String(parts[0])] = String(parts[1].dropFirst())
            }
            return fields
        }

        /// Issues a device's certificate, and returns the output by label.
        private func issue(_ name: String, _ options: String...) throws -> [String: String] {
            let arguments = [
                "ca", "issue", directory, "--uri", "blesec://devices/\(name)", "--out",
                folder.file(name),
            ]
            let outcome = try Tool.run(arguments: arguments + options)
            try #require(outcome.status == 0, "\(outcome.errors)")
            let lines = outcome.text.split(separator: "\n").map {
                $0.split(separator: ":", maxSplits: 1)
            }
            return Dictionary(
                uniqueKeysWithValues: lines.map { (String($0[0]), String($0[1].dropFirst())) })
        }

        @Test("openssl reads an authority's files, and refuses a certificate that is revoked")
        func revocation() throws {
            let made = try fields("init", directory, "--name", "Greenhouse")
            #expect(Set(made.keys) == ["fingerprint", "authority", "revoked", "expires"])
            let authority = try #require(made["authority"])
            // In the output of `ca init`, `revoked` is the path of the revocation list.
            let revocationList = try #require(made["revoked"])
            let subject = try Subprocess.run(
                "openssl",
                ["x509", "-in", authority, "-noout", "-subject", "-nameopt", "RFC2253"])
            #expect(subject.text == "subject=CN=Greenhouse\n")

            let lamp = try issue("lamp")
            #expect(Set(lamp.keys) == ["serial", "uri", "fingerprint", "expires"])
            let serial = try #require(lamp["serial"])
            let shown = try Subprocess.run(
                "openssl",
                [
                    "x509", "-in", folder.file("lamp.pem"), "-noout", "-serial", "-ext",
                    "subjectAltName",
                ]
            )
            #expect(shown.text.contains("serial=\(serial)\n"))
            #expect(shown.text.contains("URI:blesec://devices/lamp\n"))
            #expect(folder.mode("lamp.key") == 0o600)

            let verify = [
                "verify", "-crl_check", "-CRLfile", revocationList, "-CAfile", authority,
                folder.file("lamp.pem"),
            ]
            #expect(try Subprocess.run("openssl", verify).status == 0)
            let listed = try run("list", directory).text
            #expect(listed.hasPrefix("\(serial) valid   "))
            #expect(listed.hasSuffix(" \(lamp["fingerprint"] ?? "") blesec://devices/lamp\n"))

            let revocation = try fields("revoke", directory, serial)
            // In the output of `ca revoke`, `revoked` is the time of the revocation.
            #expect(Set(revocation.keys) == ["serial", "uri", "revoked"])
            #expect(revocation["serial"] == serial)
            #expect(try fields("revoke", directory, folder.file("lamp.pem")) == revocation)
            #expect(try Subprocess.run("openssl", verify).errors.contains("certificate revoked"))
            let checked = try Subprocess.run(
                "openssl", ["crl", "-in", revocationList, "-noout", "-CAfile", authority])
            #expect(checked.errors == "verify OK\n")
            #expect(try run("list", directory).text.hasPrefix("\(serial) revoked "))
            let json = try run("list", directory, "--json").text
            #expect(json.hasPrefix("{\"serial\": \"\(serial)\", \"state\": \"revoked\", "))
            #expect(folder.names == ["ca", "lamp.key", "lamp.pem"])
        }

        @Test("an authority may be made in an empty directory, which is then closed to other users")
        func emptyDirectory() throws {
            _ = try Subprocess.run("mkdir", ["-m", "777", directory])
            _ = try fields("init", directory)
            #expect(folder.mode("ca") == 0o700)
            let page = try run("init", "--help").text.split(whereSeparator: \.isWhitespace)
                .joined(separator: " ")
            #expect(page.contains("only the user who made the authority may enter DIR"))
        }

        @Test(
            "an empty directory stays the same directory, also if it is the working directory",
            arguments: [("ca", "."), (".", "ca/."), (".", "./ca/")])
        func sameDirectory(_ place: String, _ operand: String) throws {
            _ = try Subprocess.run("mkdir", ["-m", "777", directory])
            let number = try Subprocess.run("stat", ["-c", "%i", directory]).text
            let made = try Tool.run(in: folder.file(place), "ca", "init", operand)
            #expect(made.status == 0, "\(made.errors)")
            #expect(try Subprocess.run("stat", ["-c", "%i", directory]).text == number)
            #expect(folder.mode("ca") == 0o700 && folder.names == ["ca"])
            _ = try issue("lamp")
        }

        @Test("an authority is made in an empty directory even if the parent cannot be written")
        func readOnlyParent() throws {
            _ = try Subprocess.run("mkdir", [folder.file("parent"), folder.file("parent/ca")])
            try #require(unsafe chmod(folder.file("parent"), 0o500) == 0)
            defer { unsafe chmod(folder.file("parent"), 0o700) }
            let parent = folder.file("parent")
            let made = try Tool.runBoundByPermissions(["ca", "init", parent + "/ca"])
            #expect(made.status == 0, "\(made.errors)")
            Tool.expect(
                try Tool.runBoundByPermissions(["ca", "init", parent + "/new"]), status: 73,
                "\(parent)/new cannot be created: Permission denied")
            #expect(try Subprocess.run("ls", ["-A", parent]).text == "ca\n")
        }

        @Test("if several processes make an authority in the same directory, only one succeeds")
        func concurrentInit() throws {
            let running = try (0..<6).map { _ in try Tool.start(["ca", "init", directory]) }
            let statuses = try Subprocess.wait(running).map(\.status)
            #expect(statuses.sorted() == [0, 73, 73, 73, 73, 73])
            _ = try issue("lamp")
        }

        @Test("an error about a device's key names the file, also if the file's name is one letter")
        func shortKeyName() throws {
            _ = try fields("init", directory)
            folder.write("h", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
            let outcome = try Tool.run(
                in: folder.path, "ca", "issue", "ca", "--uri", "a:b", "--key", "h", "--out", "lamp")
            Tool.expect(outcome, status: 65, "blesec: h holds a damaged key")
        }

        /// Writes the public key whose DER form is `info` in PEM form, and returns the file's path.
        private func writeKey(_ name: String, _ info: [UInt8]) throws -> String {
            let der = folder.write("\(name).der", info)
            let made = try Subprocess.run(
                "openssl",
                ["pkey", "-pubin", "-inform", "DER", "-in", der, "-out", folder.file(name)])
            try #require(made.status == 0, "\(made.errors)")
            return folder.file(name)
        }

        @Test("a key for which no private key is needed is not certified")
        func keysWithoutSecret() throws {
            _ = try fields("init", directory)
            let made = try Subprocess.run(
                "sh",
                [
                    "-c", "openssl genrsa 2048 | openssl pkey -pubout -outform DER -out \"$0\"",
                    folder.file("rsa"),
                ])
            try #require(made.status == 0, "\(made.errors)")
            let rsa = try #require(folder.read("rsa"))
            // `evenExponent` has an even number of the same length in place of the usual exponent,
            // 65537. `neutral` has the neutral element in place of an Ed25519 key.
            #expect(rsa.suffix(5) == [0x02, 0x03, 0x01, 0x00, 0x01])
            let evenExponent = Array(rsa.dropLast()) + [0x02]
            let head: [UInt8] = [
                0x30, 0x2A, 0x30, 0x05, 0x06, 0x03, 0x2B, 0x65, 0x70, 0x03, 0x21, 0x00,
            ]
            let neutral = head + [1] + [UInt8](repeating: 0, count: 31)
            for (name, info) in [("even", evenExponent), ("neutral", neutral)] {
                let key = try writeKey(name, info)
                Tool.expect(
                    try run(
                        "issue", directory, "--uri", "a:b", "--key", key, "--out",
                        folder.file("lamp")),
                    status: 65, "\(key) holds a key that is too weak, or unusually large: RSA needs"
                )
            }
            #expect(folder.read("lamp.pem") == nil)
            #expect(try run("list", directory).text == "")
        }

        @Test(
            "for a certificate or a request in place of a key, the error names a command that prints the key",
            arguments: [
                (["req", "-x509"], "CERTIFICATE"), (["req", "-new"], "CERTIFICATE REQUEST"),
                (["req", "-new", "-newhdr"], "NEW CERTIFICATE REQUEST"),
            ])
        func otherFiles(_ command: [String], label: String) throws {
            _ = try fields("init", directory)
            let made = try Subprocess.run(
                "openssl",
                command + [
                    "-newkey", "ed25519", "-nodes", "-subj", "/CN=lamp", "-keyout",
                    folder.file("own.key"), "-out", folder.file("own file"),
                ])
            try #require(made.status == 0, "\(made.errors)")
            let refused = try run(
                "issue", directory, "--uri", "a:b", "--key", folder.file("own file"), "--out",
                folder.file("lamp"))
            Tool.expect(refused, status: 65, "holds \(label): give the public key alone")
            let proposed = try #require(refused.errors.split(separator: "`").dropFirst().first)
            #expect(proposed.hasPrefix("openssl "))
            let printed = try Subprocess.run("sh", ["-c", String(proposed)])
            try #require(printed.status == 0, "\(printed.errors)")
            _ = try issue("lamp", "--key", folder.write("own.pub", printed.output))
        }

        @Test("`list` refuses a revocation list that is too long; the manual names the exit status")
        func longList() throws {
            _ = try fields("init", directory)
            folder.write("ca/ca.crl", [UInt8](repeating: 0x23, count: (1 << 20) + 1))
            Tool.expect(try run("list", directory), status: 76, "ca.crl is longer than")
            let page = try run("list", "--help").text
            #expect(page.contains("\n       76 "))
        }

        @Test("if the system cannot lock a file or list a directory, the error says so")
        func systemErrors() throws {
            _ = try fields("init", directory)
            Tool.expect(
                try Tool.run(without: .flock, ["ca", "revoke", directory, "12AB"]), status: 73,
                "ca/lock cannot be locked: Function not implemented")
            Tool.expect(
                try Tool.run(without: .getdents64, ["ca", "list", directory]), status: 66,
                "ca/issued cannot be read: Function not implemented")
        }

        @Test("a passphrase is needed only for commands that use the authority's key")
        func passphrase() throws {
            let passphrase = folder.write("passphrase", "correct horse\n")
            _ = try fields("init", directory, "--passphrase-file", passphrase)
            let refused = try run("issue", directory, "--uri", "a:b", "--out", folder.file("lamp"))
            Tool.expect(
                refused, status: 65,
                "ca.key is encrypted: give its passphrase with --passphrase-file FILE, since")
            _ = try issue("lamp", "--passphrase-file", passphrase)
            #expect(try run("list", directory).status == 0)
            let wrong = folder.write("wrong", "battery staple\n")
            let outcome = try run(
                "revoke", directory, folder.file("lamp.pem"), "--passphrase-file", wrong)
            Tool.expect(outcome, status: 65, "the passphrase is wrong")
        }

        @Test(
            "a wrong command line gives one line with the remedy, and exit status 64",
            arguments: [
                ([], "a command is missing: init, issue, revoke or list; see `blesec ca --help`"),
                (["isue"], "unknown command `isue`: did you mean `issue`?; see `blesec ca --help`"),
                (["--jsn"], "unknown option `--jsn`"),
                (["init"], "DIR is missing; see `blesec ca init --help`"),
                (["init", "a", "b"], "unexpected argument `b`"),
                (["init", "--days", "0", "a"], "--days is a number from 1 to 36525, and not `0`"),
                (["init", "--days", "1e3", "a"], "and not `1e3`"),
                (["init", "--days", "99999999999999999999", "a"], "--days is a number from 1"),
                (["init", "--name", "\u{E9}", "a"], "1 to 64 printable ASCII characters"),
                (["issue", "a", "--out", "b"], "the device's name is missing: --uri URI"),
                (["issue", "a", "--uri", "a:b"], "the output path is missing: --out PREFIX"),
                (
                    ["issue", "a", "--uri", "lamp", "--out", "b"],
                    "there is no scheme in the URI `lamp`"
                ),
                (["issue", "a", "--uri", "a:b", "--uri", "c:d"], "--uri is given twice"),
                (["revoke", "a"], "SERIAL|FILE is missing; see `blesec ca revoke --help`"),
                (["list", "a", "--days", "1"], "unknown option `--days`"),
            ])
        func usage(_ arguments: [String], _ reason: String) throws {
            Tool.expect(try Tool.run(arguments: ["ca"] + arguments), status: 64, reason)
        }

        @Test("each bad file or number is an error with its own reason")
        func badInput() throws {
            Tool.expect(
                try run("list", directory), status: 66,
                "no such authority: make one with `blesec ca init \(directory)`")
            _ = try fields("init", directory)
            Tool.expect(try run("init", directory), status: 73, "exists and is not overwritten")
            Tool.expect(
                try run("revoke", directory, "12AB"), status: 66, "issued no certificate 12AB")
            Tool.expect(
                try run("revoke", directory, "cafe"), status: 66,
                "issued no certificate CAFE: `blesec ca list \(directory)` lists its certificates; "
                    + "if cafe is a file, write ./cafe")
            Tool.expect(
                try run("list", folder.file("my ca;x")), status: 66,
                "make one with `blesec ca init '\(folder.file("my ca;x"))'`")
            Tool.expect(
                try run("revoke", directory, folder.file("lamp.pem")), status: 66, "no such file")
            let text = folder.write("text", "hello\n")
            Tool.expect(try run("revoke", directory, text), status: 65, "holds no certificate")
            Tool.expect(
                try run("issue", directory, "--uri", "a:b", "--key", text, "--out", text),
                status: 65,
                "is not one key in PEM form")
            Tool.expect(
                try run("issue", directory, "--uri", "a:b", "--days", "4000", "--out", text),
                status: 64, "the authority itself ends on")
            #expect(folder.names == ["ca", "text"])
        }

        @Test("each command has a manual page")
        func manualPages() throws {
            let overview = try run("--help")
            #expect(overview.text.hasPrefix("NAME\n       blesec ca - "))
            for command in ["init", "issue", "revoke", "list"] {
                #expect(overview.text.contains("\n       \(command) "))
                let page = try run(command, "--help")
                #expect(page.status == 0)
                #expect(page.text.hasPrefix("NAME\n       blesec ca \(command) - "))
                let lines = page.text.split(separator: "\n")
                #expect(lines.allSatisfy { $0.count <= 80 && $0.last != " " })
            }
            #expect(try Tool.run("--help").text.contains("\n       ca "))
        }

        @Test("twelve processes issue and revoke at the same time, and every change is recorded")
        func concurrentCommands() throws {
            _ = try fields("init", directory)
            let serials = try (0..<6).map { try #require(try issue("old\($0)")["serial"]) }
            var running: [Subprocess] = []
            for (index, serial) in serials.enumerated() {
                running.append(try Tool.start(["ca", "revoke", directory, serial]))
                running.append(
                    try Tool.start([
                        "ca", "issue", directory, "--uri", "a:b", "--out",
                        folder.file("new\(index)"),
                    ]))
            }
            let outcomes = try Subprocess.wait(running)
            #expect(outcomes.allSatisfy { $0.status == 0 }, "\(outcomes.map(\.errors))")
            let lines = try run("list", directory).text.split(separator: "\n")
            #expect(lines.count == 12)
            #expect(lines.filter { $0.contains(" revoked ") }.count == 6)
        }

        @Test("a command that is killed leaves no incomplete file, and later commands still work")
        func killed() throws {
            _ = try fields("init", directory)
            let serial = try #require(try issue("old")["serial"])
            for round in 0..<24 {
                let name = "new\(round)"
                let commands = [
                    "issue '\(directory)' --uri a:b --out '\(folder.file(name))'",
                    "revoke '\(directory)' \(serial)",
                ]
                for command in commands {
                    let delay = Double(round) * 0.002
                    _ = try Subprocess.run(
                        "sh",
                        ["-c", "'\(Tool.path)' ca \(command) & sleep \(delay); kill -9 $!; wait"])
                }
                guard let key = folder.read("\(name).key") else {
                    #expect(folder.read("\(name).pem") == nil)
                    continue
                }
                #expect(String(decoding: key, as: UTF8.self).hasSuffix("PRIVATE KEY-----\n"))
                if folder.read("\(name).pem") != nil {
                    let verified = try Subprocess.run(
                        "openssl",
                        ["verify", "-CAfile", "\(directory)/ca.pem", folder.file("\(name).pem")])
                    #expect(verified.status == 0)
                }
            }
            #expect(try run("list", directory).status == 0)
            #expect(try fields("revoke", directory, serial)["serial"] == serial)
        }
    }
}
