import BLESecJSON
import BLESecNoise
import BLESecPrimitives
import FoundationEssentials
import Testing

@testable import BLESecNoiseVectors

@Suite struct AdditionalSymmetricKeysTests {
    @Test("both sides have the same key for a label; other labels and sessions have other keys")
    func agreement() throws {
        let pair = try TransportPair("Noise_XX_25519_ChaChaPoly_BLAKE2s")
        let other = try TransportPair("Noise_XX_25519_ChaChaPoly_BLAKE2s")
        let key = keyBytes(pair.initiator.additionalKeys, "first")
        #expect(key == keyBytes(pair.responder.additionalKeys, "first"))
        #expect(key != keyBytes(pair.initiator.additionalKeys, "second"))
        #expect(key != keyBytes(other.initiator.additionalKeys, "first"))
        #expect(key.count == 32)
        #expect(keyBytes(pair.initiator.additionalKeys, "first", count: 100).prefix(32) == key[...])
    }

    @Test("a rekey changes no additional key")
    func rekey() throws {
        var pair = try TransportPair("Noise_XX_25519_ChaChaPoly_SHA256")
        let before = keyBytes(pair.initiator.additionalKeys, "label")
        try pair.initiator.rekeySend()
        try pair.initiator.rekeyReceive()
        #expect(keyBytes(pair.initiator.additionalKeys, "label") == before)
    }

    @Test("the keys equal those that Python's hmac derives after an independent handshake")
    func vectors() throws {
        let data = try TestVectors.data("additional-keys.json")
        let entries = try JSONReader.read([UInt8](data)).required("entries", Entry.all)
        #expect(entries.count == 4)
        for entry in entries {
            let session = try entry.vector.session()
            for key in entry.keys {
                #expect(keyBytes(session.initiator.additionalKeys, key.label) == key.bytes)
            }
        }
    }
}

/// A test vector, and the additional symmetric keys that follow from its handshake.
private struct Entry {
    let vector: NoiseVector
    let keys: [(label: String, bytes: [UInt8])]

    static func all(_ json: JSONValue) throws(JSONMisfit) -> [Entry] {
        try json.items { entry throws(JSONMisfit) in
            Entry(
                vector: try entry.required("vector") { vector throws(JSONMisfit) in
                    try NoiseVector(vector)
                },
                keys: try entry.required("keys") { keys throws(JSONMisfit) in
                    try keys.items { item throws(JSONMisfit) in
                        (
                            label: try item.text("label"),
                            bytes: try item.required("key") { value throws(JSONMisfit) in
                                try value.bytes()
                            }
                        )
                    }
                })
        }
    }
}

private func keyBytes(
    _ keys: borrowing AdditionalSymmetricKeys, _ label: String, count: Int = 32
) -> [UInt8] {
    let label = Array(label.utf8)
    let key = keys.key(label: label.span, count: count)
    return key.span.indices.map { key.span[$0] }
}

extension NoiseVector {
    /// The transport states of both sides after the vector's handshake.
    fileprivate func session() throws -> VectorTransport {
        var handshake = try VectorHandshake(self, ProtocolName(protocolName))
        for message in messages where !handshake.isFinished {
            _ = try handshake.read(handshake.write(message.payload))
        }
        return try handshake.split()
    }
}
