internal import BLESec
@testable internal import BLESecChannelCore
@testable internal import BLESecCredentials
@testable internal import BLESecL2CAP
internal import BLESecLinks
internal import BLESecNoise
internal import BLESecTLSEngine

extension FuzzTarget {
    /// Values that are written in one line of text: keys, protocols, endpoints, addresses, PSMs,
    /// URIs, serial numbers, names of peers. Also the bytes of an L2CAP socket address.
    static let text = FuzzTarget(name: "text") { input in
        var script = Script(input)
        let kind = script.number(below: 9)
        let bytes = script.takeRest()
        let text = String(decoding: bytes, as: UTF8.self)
        switch kind {
        case 0: readKeys(text)
        case 1:
            guard let name = try? ProtocolName(text) else { return }
            precondition(name.description == text, "a protocol has two names")
        case 2:
            guard let endpoint = try? Endpoint(parsing: text) else { return }
            let again = must { try Endpoint(parsing: endpoint.description) }
            precondition(again == endpoint)
        case 3:
            guard let address = try? L2CAPAddress(parsing: text) else { return }
            precondition(must { try Endpoint(parsing: address.description) } == Endpoint(address))
        case 4:
            if let psm = try? PSM(parsing: text) {
                precondition(must { try PSM(parsing: psm.description) } == psm)
            }
            if let address = BluetoothAddress(text) {
                precondition(BluetoothAddress(address.description) == address)
                precondition(BluetoothAddress(bytes: address.bytes) == address)
            }
        case 5:
            if let address = L2CAPSocketAddress(SocketAddress(bytes)) {
                precondition(L2CAPSocketAddress(address.socketAddress) == address)
            }
        case 6:
            guard let uri = try? SubjectURI(text) else { return }
            precondition(uri.text == text && text.utf8.count <= SubjectURI.maximumLength)
        case 7:
            guard let serial = SerialNumber(text) else { return }
            precondition(SerialNumber(serial.description) == serial)
        default:
            if let name = PeerName.unescape(text[...]) {
                precondition(PeerName.unescape(PeerName.escape(name)[...]) == name)
            }
            if text.utf8.count <= PeerName.maximumLength, !text.isEmpty {
                precondition(PeerName.unescape(PeerName.escape(text)[...]) == text)
            }
        }
    } seeds: {
        let key = Devices.dialer
        let lines: [(UInt8, String)] = [
            (0, key.fingerprint.description), (0, Base64.encode(key.publicKey, padded: true)),
            (1, "Noise_XX_25519_ChaChaPoly_SHA256"), (1, "Noise_IK1psk0+psk2_448_AESGCM_BLAKE2b"),
            (1, "Noise_XXfallback+psk2_25519_AESGCM_SHA512"), (2, "unix:/tmp/a"),
            (2, "unix-seqpacket:b"), (2, "l2cap:AA:BB:CC:DD:EE:FF/0x80"), (2, "l2cap:any"),
            (2, "l2cap:any/0x85"), (3, "AA:BB:CC:DD:EE:FF/128"), (4, "0x80"),
            (4, "AA:BB:CC:DD:EE:FF"), (6, "blesec://devices/a%20b"), (7, "01:ab:CD"),
            (8, "a%20%C3%A9/b"),
        ]
        let socket = L2CAPSocketAddress(device: .any, type: .random, psm: 0x80).socketAddress.bytes
        return lines.map { [$0.0] + Array($0.1.utf8) } + [[5] + socket]
    }

    private static func readKeys(_ text: String) {
        if let fingerprint = Fingerprint(text) {
            precondition(fingerprint.description == text, "a fingerprint has two forms")
        }
        if let key = try? PeerKey(parsing: text), let raw = key.publicKey {
            precondition(Base64.encode(raw, padded: true) == text, "a key has two forms")
        }
        for padded in [false, true] {
            guard let bytes = Base64.decode(text, padded: padded) else { continue }
            precondition(Base64.encode(bytes, padded: padded) == text)
        }
    }
}
