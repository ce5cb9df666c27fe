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

/// In optimized builds, functions of the C library check buffers whose length the compiler knows.
let fortified: [CSetting] = [.define("_FORTIFY_SOURCE", to: "2", .when(configuration: .release))]

let package = Package(
    name: "blesec",
    products: [
        .library(name: "BLESec", targets: ["BLESec"]),
        .library(name: "BLESecStore", targets: ["BLESecStore"]),
        .library(name: "BLESecFiles", targets: ["BLESecFiles"]),
        .library(name: "BLESecNoise", targets: ["BLESecNoise"]),
        .library(name: "BLESecTesting", targets: ["BLESecTesting"]),
        .executable(name: "blesec", targets: ["blesec"]),
        .executable(name: "blesec-bench", targets: ["blesec-bench"]),
    ],
    targets: [
        // C: headers, module maps and short functions around macros.
        .target(name: "CBLESecLinux", cSettings: fortified),
        // sd-bus: libsystemd is loaded when it is first used (docs/dependencies.md).
        .target(name: "CBLESecSDBus", cSettings: fortified),
        // Only headers are used. With pkgConfig, every program would be linked with libbluetooth
        // (docs/dependencies.md).
        .systemLibrary(name: "CBLESecBlueZ", providers: [.apt(["libbluetooth-dev"])]),
        .systemLibrary(
            name: "CBLESecSodium", pkgConfig: "libsodium", providers: [.apt(["libsodium-dev"])]),
        .systemLibrary(
            name: "CBLESecOpenSSL", pkgConfig: "openssl", providers: [.apt(["libssl-dev"])]),
        .systemLibrary(
            name: "CBLESecSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
        .systemLibrary(
            name: "CBLESecQRCode", pkgConfig: "libqrencode", providers: [.apt(["libqrencode-dev"])]),
        .systemLibrary(
            name: "CBLESecPNG", pkgConfig: "libpng", providers: [.apt(["libpng-dev"])]),

        // `Lifetimes` allows SecretBytes to return a Span of the memory that it owns.
        .target(
            name: "BLESecPrimitives",
            dependencies: ["BLESecLocking", "CBLESecSodium", "CBLESecOpenSSL"],
            swiftSettings: strict + [.enableExperimentalFeature("Lifetimes")]),
        library("BLESecNoise", ["BLESecPrimitives"]),
        // Reads, runs and makes test vectors in the format that Noise implementations share.
        library("BLESecNoiseVectors", ["BLESecNoise", "BLESecPrimitives", "BLESecJSON"]),
        // Reads JSON strictly, and writes it.
        library("BLESecJSON", []),
        library("BLESecLocking", []),
        library("BLESecChannelCore", ["BLESecPrimitives", "BLESecLocking"]),
        library("BLESecNoiseEngine", ["BLESecNoise", "BLESecChannelCore", "BLESecPrimitives"]),
        library(
            "BLESecTLSEngine",
            ["BLESecChannelCore", "BLESecPrimitives", "BLESecLocking", "CBLESecOpenSSL"]),
        library(
            "BLESecCredentials",
            [
                "BLESecChannelCore", "BLESecTLSEngine", "BLESecNoise", "BLESecPrimitives",
                "BLESecLocking", "CBLESecOpenSSL",
            ]),
        // Messages exactly once over lost links: the state machine.
        library("BLESecDelivery", []),
        library("BLESecLinks", ["CBLESecLinux", "BLESecLocking"]),
        library("BLESecL2CAP", ["BLESecLinks", "CBLESecBlueZ", "CBLESecLinux"]),
        library("BLESecDiscovery", ["BLESecL2CAP", "BLESecLinks", "CBLESecSDBus"]),
        library(
            "BLESec",
            [
                "BLESecChannelCore", "BLESecNoiseEngine", "BLESecNoise", "BLESecTLSEngine",
                "BLESecCredentials", "BLESecDelivery", "BLESecLinks",
                "BLESecL2CAP", "BLESecDiscovery", "BLESecPrimitives", "BLESecLocking",
            ]),
        // Stores of messages on disk; only programs that use this module are linked with SQLite.
        library(
            "BLESecStore",
            [
                "BLESec", "BLESecDelivery", "BLESecChannelCore", "BLESecCredentials",
                "BLESecPrimitives", "BLESecLocking", "CBLESecSQLite",
            ]),
        // Files over a connection's streams.
        library(
            "BLESecFiles",
            [
                "BLESec", "BLESecDelivery", "BLESecChannelCore", "BLESecCredentials", "BLESecLinks",
                "BLESecPrimitives", "BLESecLocking", "CBLESecLinux",
            ]),
        // QR codes on terminals and as images; only programs that use this module are linked with
        // libqrencode and libpng.
        library("BLESecQRCode", ["CBLESecQRCode", "CBLESecPNG"]),
        library(
            "BLESecTesting",
            ["BLESec", "BLESecLinks", "BLESecPrimitives", "CBLESecLinux", "BLESecLocking"]),

        // A link over modelled LE radio, for the bench.
        library("BLESecRadioModel", ["BLESecL2CAP", "BLESecLinks", "BLESecPrimitives"]),
        // What command-line tools have in common: arguments, manual pages, exit statuses.
        library(
            "BLESecToolKit", ["BLESec", "BLESecChannelCore", "BLESecJSON", "BLESecLocking"]),
        tool(
            "blesec",
            [
                "BLESecToolKit", "BLESec", "BLESecStore", "BLESecFiles", "BLESecQRCode",
                "BLESecCredentials", "BLESecTLSEngine",
                "BLESecChannelCore", "BLESecDiscovery",
                "BLESecLinks", "BLESecNoise",
                "BLESecNoiseVectors", "BLESecJSON", "BLESecPrimitives", "BLESecLocking",
                "CBLESecLinux",
            ]),
        // C code that does the same work as blesec; the bench compares the speed of both.
        .target(
            name: "CBLESecBench", dependencies: ["CBLESecSodium", "CBLESecOpenSSL"],
            cSettings: fortified),
        tool(
            "blesec-bench",
            [
                "BLESecToolKit", "BLESec", "BLESecStore", "BLESecDelivery", "BLESecTesting",
                "BLESecCredentials", "BLESecLinks", "BLESecL2CAP",
                "BLESecNoiseEngine", "BLESecNoise", "BLESecTLSEngine", "BLESecChannelCore",
                "BLESecPrimitives", "BLESecLocking",
                "BLESecJSON", "BLESecRadioModel", "CBLESecBench",
            ]),

        tests("PrimitivesTests", ["BLESecPrimitives"]),
        // Replaces malloc with a function that counts allocations, in test bundles that depend on it.
        .target(name: "CAllocationCounter", path: "Tests/CAllocationCounter"),
        tests(
            "NoiseTests",
            [
                "BLESecNoise", "BLESecNoiseVectors", "BLESecJSON", "BLESecPrimitives",
                "CAllocationCounter",
            ]),
        tests("ChannelCoreTests", ["BLESecChannelCore", "BLESecPrimitives", "BLESecLocking"]),
        tests("EndpointTests", ["BLESecDelivery", "BLESecPrimitives"]),
        tests(
            "StoreTests",
            [
                "BLESecStore", "BLESecDelivery", "BLESecPrimitives", "BLESecLocking", "TestSupport",
            ]),
        tests(
            "FilesTests",
            ["BLESecFiles", "BLESec", "BLESecChannelCore", "BLESecPrimitives", "TestSupport"]),
        tests("QRCodeTests", ["BLESecQRCode", "TestSupport"]),
        tests("NoiseEngineTests", ["BLESecNoiseEngine", "BLESecChannelCore", "BLESecPrimitives"]),
        tests(
            "TLSEngineTests",
            [
                "BLESecTLSEngine", "BLESecCredentials", "BLESecChannelCore", "BLESecPrimitives",
                "TestSupport",
                "CAllocationCounter", "CBLESecOpenSSL", "BLESecLocking",
            ]),
        tests(
            "CredentialsTests",
            [
                "BLESecCredentials", "BLESecTLSEngine", "BLESecChannelCore", "BLESecPrimitives",
                "BLESecLocking", "TestSupport",
            ]),
        tests(
            "LinksTests", ["BLESecLinks", "BLESecTesting", "BLESecLocking", "CAllocationCounter"]),
        tests(
            "DiscoveryTests",
            ["BLESecDiscovery", "BLESecL2CAP", "BLESecLinks", "BLESec", "BLESecTesting"]),
        tests("L2CAPTests", ["BLESecL2CAP", "BLESecLinks", "CBLESecLinux"]),
        tests(
            "BLESecTests",
            [
                "BLESec", "BLESecStore", "BLESecTesting", "BLESecChannelCore", "BLESecDelivery",
                "BLESecLinks", "BLESecLocking", "BLESecNoise",
                "BLESecNoiseEngine", "BLESecTLSEngine", "BLESecCredentials", "BLESecPrimitives",
                "TestSupport", "CBLESecOpenSSL",
            ]),
        .testTarget(
            name: "BenchTests",
            dependencies: [
                "blesec-bench", "BLESec", "BLESecLinks", "BLESecNoiseEngine", "BLESecNoise",
                "BLESecRadioModel", "BLESecTesting", "TestSupport", "CAllocationCounter",
            ], exclude: ["Checks"], swiftSettings: strict),
        tests(
            "ToolTests",
            [
                "blesec", "BLESec", "BLESecDiscovery", "BLESecL2CAP", "BLESecLinks",
                "BLESecToolKit", "TestSupport",
            ]),
        tests("DocumentationTests", ["TestSupport", "blesec", "blesec-bench"]),
        .testTarget(
            name: "Integration",
            dependencies: [
                "BLESec", "BLESecStore", "BLESecDelivery", "BLESecChannelCore", "BLESecCredentials",
                "BLESecLinks", "BLESecLocking", "BLESecNoise", "BLESecPrimitives", "TestSupport",
            ], exclude: ["Peers"], swiftSettings: strict),
        // Subprocesses, scratch folders and certificate authorities, for tests only.
        .target(
            name: "TestSupport",
            dependencies: ["BLESecCredentials", "BLESecTLSEngine", "BLESecLocking"],
            path: "Tests/Support",
            swiftSettings: strict),
    ],
    swiftLanguageModes: [.v6],
    cLanguageStandard: .c11
)

// Tests that need Bluetooth run only in the laboratory. Elsewhere they are not built, so that none
// is skipped.
if Context.environment["BLESEC_LAB"] != nil {
    package.targets.append(
        .testTarget(
            name: "LabTests",
            dependencies: [
                "BLESec", "BLESecL2CAP", "BLESecLinks", "BLESecTesting", "BLESecChannelCore",
                "BLESecCredentials", "BLESecTLSEngine", "TestSupport",
            ], path: "Tests/Lab/LabTests", swiftSettings: strict))
}

// Other builds are without the fuzz targets, since these need a sanitizer in all code that they run,
// and their main function is libFuzzer's.
if Context.environment["BLESEC_FUZZ"] != nil {
    package.targets.append(
        .executableTarget(
            name: "blesec-fuzz",
            dependencies: [
                "BLESec", "BLESecCredentials", "BLESecTLSEngine", "BLESecChannelCore",
                "BLESecDelivery", "BLESecDiscovery", "BLESecL2CAP", "BLESecLinks",
                "BLESecNoise", "BLESecNoiseVectors", "BLESecPrimitives", "CBLESecOpenSSL",
            ],
            path: "Fuzz/Targets", swiftSettings: strict))
}
