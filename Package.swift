// swift-tools-version: 6.2
import PackageDescription

let strict: [SwiftSetting] = [
    .strictMemorySafety(),
    .treatAllWarnings(as: .error),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    .enableUpcomingFeature("InferIsolatedConformances"),
    .enableUpcomingFeature("ImmutableWeakCaptures"),
]

func library(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .target(name: name, dependencies: dependencies, swiftSettings: strict)
}

func tool(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .executableTarget(name: name, dependencies: dependencies, swiftSettings: strict)
}

func tests(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .testTarget(name: name, dependencies: dependencies, swiftSettings: strict)
}

let package = Package(
    name: "blesec",
    products: [
        .library(name: "BLESec", targets: ["BLESec"]),
        .library(name: "Noise", targets: ["Noise"]),
        .library(name: "BLESecTesting", targets: ["BLESecTesting"]),
        .executable(name: "blesec", targets: ["blesec"]),
        .executable(name: "blesec-bench", targets: ["blesec-bench"]),
    ],
    targets: [
        // C: headers, module maps and one-line functions for macros.
        .target(name: "CLinux"),
        .systemLibrary(
            name: "CBlueZ", pkgConfig: "bluez", providers: [.apt(["libbluetooth-dev"])]),
        .systemLibrary(
            name: "CSystemd", pkgConfig: "libsystemd", providers: [.apt(["libsystemd-dev"])]),
        .systemLibrary(
            name: "CSodium", pkgConfig: "libsodium", providers: [.apt(["libsodium-dev"])]),
        .systemLibrary(
            name: "COpenSSL", pkgConfig: "openssl", providers: [.apt(["libssl-dev"])]),

        // `Lifetimes` lets a type of its own hand out a Span of what it owns (SecretBytes.span).
        .target(
            name: "Primitives", dependencies: ["Locking", "CSodium", "COpenSSL"],
            swiftSettings: strict + [.enableExperimentalFeature("Lifetimes")]),
        library("Noise", ["Primitives"]),
        // Vectors in the shape that Noise implementations share: read, run and made.
        library("NoiseVectors", ["Noise", "Primitives", "JSONText"]),
        // JSON out of files, strictly.
        library("JSONText", []),
        library("Locking", []),
        library("ChannelCore", ["Primitives", "Locking"]),
        library("NoiseEngine", ["Noise", "ChannelCore", "Primitives"]),
        library("TLSEngine", ["ChannelCore", "Primitives", "Locking", "COpenSSL"]),
        library(
            "Credentials", ["ChannelCore", "TLSEngine", "Primitives", "Locking", "COpenSSL"]),
        library("Links", ["CLinux", "Locking"]),
        library("L2CAP", ["Links", "CBlueZ", "CLinux"]),
        library("Discovery", ["L2CAP", "Links", "CSystemd"]),
        library(
            "BLESec",
            [
                "ChannelCore", "NoiseEngine", "Noise", "TLSEngine", "Credentials", "Links",
                "L2CAP", "Discovery", "Primitives", "Locking",
            ]),
        library("BLESecTesting", ["BLESec", "Links", "CLinux", "Locking"]),

        // What command-line tools have in common: arguments, manual pages, exit statuses.
        library("ToolKit", ["BLESec", "ChannelCore", "Locking"]),
        tool(
            "blesec",
            [
                "ToolKit", "BLESec", "Credentials", "TLSEngine", "ChannelCore", "Discovery",
                "Links", "Noise",
                "NoiseVectors", "Primitives", "Locking",
            ]),
        // The limits that the bench compares with: the same work in C.
        .target(name: "CBench", dependencies: ["CSodium", "COpenSSL"]),
        tool(
            "blesec-bench",
            [
                "ToolKit", "BLESec", "BLESecTesting", "Credentials", "Links", "L2CAP",
                "NoiseEngine", "Noise", "TLSEngine", "ChannelCore", "Primitives", "Locking",
                "JSONText", "CBench",
            ]),

        // The example of README.md.
        .executableTarget(
            name: "Greeting", dependencies: ["BLESec"], path: "Examples/Greeting",
            swiftSettings: [.treatAllWarnings(as: .error)]),

        tests("PrimitivesTests", ["Primitives"]),
        // Replaces malloc by one that counts, in test bundles that ask for it.
        .target(name: "CAllocationCounter", path: "Tests/CAllocationCounter"),
        tests(
            "NoiseTests",
            ["Noise", "NoiseVectors", "JSONText", "Primitives", "CAllocationCounter"]),
        tests("ChannelCoreTests", ["ChannelCore", "Primitives", "Locking"]),
        tests("NoiseEngineTests", ["NoiseEngine", "ChannelCore", "Primitives"]),
        tests(
            "TLSEngineTests",
            [
                "TLSEngine", "Credentials", "ChannelCore", "Primitives", "TestSupport",
                "CAllocationCounter", "COpenSSL", "Locking",
            ]),
        tests(
            "CredentialsTests",
            ["Credentials", "TLSEngine", "ChannelCore", "Primitives", "TestSupport"]),
        tests("LinksTests", ["Links", "BLESecTesting", "Locking", "CAllocationCounter"]),
        tests("DiscoveryTests", ["Discovery", "L2CAP", "Links", "BLESec", "BLESecTesting"]),
        tests("L2CAPTests", ["L2CAP", "Links", "CLinux"]),
        tests(
            "BLESecTests",
            [
                "BLESec", "BLESecTesting", "ChannelCore", "Links", "Locking", "Noise",
                "NoiseEngine", "TLSEngine", "Credentials", "Primitives", "TestSupport", "COpenSSL",
            ]),
        .testTarget(
            name: "BenchTests",
            dependencies: [
                "blesec-bench", "BLESec", "NoiseEngine", "Noise", "TestSupport",
                "CAllocationCounter",
            ], exclude: ["Checks"], swiftSettings: strict),
        tests("DocumentationTests", ["TestSupport", "Greeting", "blesec"]),
        .testTarget(
            name: "Integration", dependencies: ["TestSupport"], exclude: ["Peers"],
            swiftSettings: strict),
        // Subprocesses, scratch folders and authorities, for tests alone.
        .target(
            name: "TestSupport",
            dependencies: ["Credentials", "TLSEngine", "Locking"], path: "Tests/Support",
            swiftSettings: strict),
    ],
    swiftLanguageModes: [.v6],
    cLanguageStandard: .c11
)

// What needs Bluetooth runs in the laboratory only, and is not skipped elsewhere but absent.
if Context.environment["BLESEC_LAB"] != nil {
    package.targets.append(
        tests(
            "LabTests",
            [
                "BLESec", "L2CAP", "Links", "BLESecTesting", "ChannelCore", "Credentials",
                "TLSEngine", "TestSupport",
            ]))
}

// Fuzzing needs a sanitizer in all that it runs, and brings a main function of its own.
if Context.environment["BLESEC_FUZZ"] != nil {
    package.targets.append(
        .executableTarget(
            name: "blesec-fuzz",
            dependencies: [
                "BLESec", "Credentials", "TLSEngine", "ChannelCore", "Discovery", "L2CAP", "Links",
                "Noise", "NoiseVectors", "Primitives", "COpenSSL",
            ],
            path: "Fuzz/Targets", swiftSettings: strict))
}
