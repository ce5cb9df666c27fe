// swift-tools-version: 6.2
import PackageDescription

// The examples are a package of their own, so that they can use only public declarations of blesec.

let strict: [SwiftSetting] = [.treatAllWarnings(as: .error)]
let blesec = Target.Dependency.product(name: "BLESec", package: "blesec")

func example(_ name: String) -> Target {
    .executableTarget(name: name, dependencies: [blesec], swiftSettings: strict)
}

let package = Package(
    name: "blesec-examples",
    dependencies: [.package(name: "blesec", path: "..")],
    targets: [
        example("Greeting"),
        example("Echo"),
        example("Nearby"),
        example("TLS"),
        // The Swift code of README.md and of the reference pages.
        .target(
            name: "Snippets",
            dependencies: [
                blesec, .product(name: "BLESecFiles", package: "blesec"),
                .product(name: "BLESecNoise", package: "blesec"),
                .product(name: "BLESecTesting", package: "blesec"),
            ],
            swiftSettings: strict),
        .testTarget(
            name: "ExampleTests",
            dependencies: [
                "Greeting", "Echo", "Nearby", "TLS", "Snippets",
                // The tool makes the keys and the certificates.
                .product(name: "blesec", package: "blesec"),
            ], swiftSettings: strict),
    ],
    swiftLanguageModes: [.v6]
)
