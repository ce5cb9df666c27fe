internal import CBLESecSodium

/// The initialization of libsodium.
enum Sodium {
    /// Whether libsodium is initialized. The first use runs `sodium_init`, on one thread.
    ///
    /// `sodium_init` fails only without a source of randomness; then `start` stops the process.
    static let isReady: Bool = sodium_init() >= 0

    /// Whether this processor has the instructions that libsodium's AES-256-GCM needs.
    static let hasAESGCM: Bool = {
        start()
        return crypto_aead_aes256gcm_is_available() == 1
    }()

    /// Ensures that libsodium is initialized.
    static func start() {
        precondition(isReady, "libsodium could not be started: no source of randomness")
    }
}
