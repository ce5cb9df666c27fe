@testable internal import BLESecDiscovery
internal import BLESecL2CAP

extension FuzzTarget {
    /// What unauthenticated peers advertise, their PSM values and stream fragments, and the text
    /// forms of UUIDs and addresses.
    static let discovery = FuzzTarget(name: "discovery") { input in
        var script = Script(input)
        switch script.number(below: 5) {
        case 0: readPayload(script.takeRest())
        case 1: readAdvertisement(&script)
        case 2:
            let bytes = script.takeRest()
            guard let psm = PSMValue.parse(bytes) else { return }
            precondition(psm.isDynamic && (bytes.count == 2 || bytes.count == 4))
            precondition(PSMValue.parse(PSMValue.format(psm)) == psm)
            precondition(PSMValue.parse(bytes.reversed()) == psm, "the byte order changes the PSM")
        case 3:
            let text = String(decoding: script.takeRest(), as: UTF8.self)
            if let uuid = BluetoothUUID(text) {
                precondition(BluetoothUUID(uuid.description) == uuid)
            }
            if let address = BluetoothAddress(text) {
                precondition(BluetoothAddress(address.description) == address)
            }
        default:
            let bytes = script.takeRest()
            guard let fragment = StreamFragment(bytes) else { return }
            precondition(fragment.bytes == bytes, "a fragment is not written as it was read")
            precondition((fragment.acceptedSize != nil) == (fragment.kind == .open))
        }
    } seeds: {
        let payload = AdvertisementPayload(
            capabilities: [.l2cap, .gattStream, .noise], psm: try PSM(0x83),
            tag: AdvertisementTag(rawValue: 0xC0FF_EE01))
        let opening = StreamFragment(
            .open, stream: 9, number: 0, limit: 32,
            payload: StreamFragment.openingPayload(acceptedSize: 508))
        let data = StreamFragment(.data, stream: 9, number: 3, limit: 40, payload: [1, 2, 3])
        return [
            [0] + payload.bytes, [0] + Array(payload.text.utf8),
            [1, 1, 6] + payload.bytes + [8] + Array(payload.text.utf8) + [6] + payload.bytes,
            [1, 0, 6] + payload.bytes, [2, 0x83, 0], [2, 0, 0, 0, 0x83],
            [3] + Array(PSMValue.characteristic.description.utf8), [3] + Array("180F".utf8),
            [3] + Array("AA:BB:CC:DD:EE:FF (random)".utf8), [4] + opening.bytes, [4] + data.bytes,
        ]
    }

    private static func readPayload(_ bytes: [UInt8]) {
        for payload in [
            AdvertisementPayload(bytes),
            AdvertisementPayload(text: String(decoding: bytes, as: UTF8.self)),
        ] {
            guard let payload else { continue }
            precondition(payload.psm?.isDynamic ?? true)
            precondition(
                AdvertisementPayload(payload.bytes) == payload
                    && payload.bytes.count == AdvertisementPayload.size)
            precondition(AdvertisementPayload(text: payload.text) == payload)
        }
    }

    private static func readAdvertisement(_ script: inout Script) {
        // Which UUID the service has does not matter here.
        let service = PSMValue.characteristic
        let listsService = script.flag()
        let (data, name, manufacturer) = (script.piece(), script.piece(), script.piece())
        let advertisement = ServiceAdvertisement(
            of: service, uuids: listsService ? [service] : [],
            name: String(decoding: name, as: UTF8.self),
            serviceData: data.isEmpty ? [:] : [service: data],
            manufacturerData: [ServiceAdvertisement.company: manufacturer])
        guard let advertisement else { return precondition(!listsService && data.isEmpty) }
        precondition(listsService || advertisement.payload == AdvertisementPayload(data))
    }
}
