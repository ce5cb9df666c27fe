internal import CBLESecSodium

/// libsodium's one-time start.
enum Sodium {
    /// True once libsodium is ready; `sodium_init` runs on the first use, on one thread.
    ///
    /// It fails only where the system has no source of randomness, and then nothing here may run.
    static let isReady: Bool = sodium_init() >= 0

    /// Whether this processor has the instructions that libsodium's AES-256-GCM needs.
    static let hasAESGCM: Bool = {
        start()
        return crypto_aead_aes256gcm_is_available() == 1
    }()

    /// Makes sure that libsodium has been started.
    static func start() {
        precondition(isReady, "libsodium could not be started: no source of randomness")
    }
}
