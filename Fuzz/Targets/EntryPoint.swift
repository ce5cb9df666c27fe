internal import Glibc

// The functions that libFuzzer calls. The environment selects the target, so all targets are one
// executable, which is built once:
//
//     BLESEC_FUZZ_TARGET=NAME                        the target, a name of FuzzTarget.all
//     BLESEC_FUZZ_SEEDS=FOLDER                       write the target's seeds to FOLDER, and end

/// The target that the environment names. If the environment names no target, or a target that does
/// not exist, the process prints the targets' names and exits.
private let chosenTarget: FuzzTarget = {
    let name = unsafe getenv("BLESEC_FUZZ_TARGET").map { unsafe String(cString: $0) } ?? ""
    guard let target = FuzzTarget.all.first(where: { $0.name == name }) else {
        for target in FuzzTarget.all { print(target.name) }
        exit(name.isEmpty ? 0 : 64)
    }
    return target
}()

/// Called once, before the first input.
@_cdecl("LLVMFuzzerInitialize")
public func initialize(
    _ count: UnsafeMutablePointer<Int32>?,
    _ arguments: UnsafeMutablePointer<UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?>?
) -> Int32 {
    let target = chosenTarget
    if let folder = unsafe getenv("BLESEC_FUZZ_SEEDS").map({ unsafe String(cString: $0) }) {
        must { try target.writeSeeds(to: folder) }
        exit(0)
    }
    return 0
}

/// Called with every input.
@_cdecl("LLVMFuzzerTestOneInput")
public func testOneInput(_ bytes: UnsafePointer<UInt8>?, _ count: Int) -> Int32 {
    chosenTarget.run(unsafe Array(UnsafeBufferPointer(start: bytes, count: count)))
    return 0
}
