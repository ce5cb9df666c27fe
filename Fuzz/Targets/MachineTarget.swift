@testable internal import BLESec

extension FuzzTarget {
    /// A channel's machine in either role, against unauthenticated peers and against peers that use
    /// their keys arbitrarily, while its application acts and time passes.
    static let machine = FuzzTarget(name: "machine") { input in
        var script = Script(input)
        let setting = script.choice(Setting.all)
        let role: ChannelRole = script.flag() ? .acceptor : .dialer
        // Bit 0: an honest handshake comes first. Bit 1: the trust policy asks.
        let options = script.byte()
        let scene = MachineScene(setting, victim: role, policyAsks: options & 2 == 2)
        if options & 1 == 1 {
            scene.shakeHands()
            precondition(
                scene.isReady == setting.hasCommonProtocol,
                "the handshake of two honest machines did not end as the setting predicts")
        }
        while !script.isOver { scene.play(&script) }
        scene.end()
    } seeds: {
        var seeds: [[UInt8]] = []
        for index in 0..<Setting.all.count {
            for role: UInt8 in 0..<2 {
                let start: [UInt8] = [UInt8(index), role]
                seeds.append(start + [0] + courses[0])
                seeds.append(start + [2] + courses[0] + [10, 0] + courses[0])
                // A first message that a peer can forge with public keys alone.
                for key in [[], Devices.dialer.publicKey] {
                    let message = [UInt8](repeating: 9, count: 32) + key
                    let count = UInt8(message.count)
                    seeds.append(start + [0, 0, count + 2, 0, count] + message + courses[0])
                }
                // Four courses for each setting; together, the settings use every course.
                for number in 0..<4 {
                    let course = courses[1 + (3 * index + number) % (courses.count - 1)]
                    seeds.append(start + [1] + course)
                }
            }
        }
        return seeds
    }

    /// Sequences of events between two machines. Some of the events are forbidden.
    private static let courses: [[UInt8]] = [
        // The victim receives all waiting bytes, four times.
        [1, 0, 1, 0, 1, 0, 1, 0],
        // Messages in both directions, acknowledgements, ends.
        [5, 3, 7, 4, 1, 0, 6, 8, 1, 1, 0, 13, 0, 9, 0, 8, 1, 1, 0, 8, 2, 1, 0],
        // Forbidden records after permitted ones: an end inside a message; a pong
        // without a ping, and a rekey that is too early; a malformed reject.
        [3, 0, 1, 65, 3, 1, 1, 66, 3, 2, 1, 0, 3, 3, 8, 1, 2, 3, 4, 5, 6, 7, 8, 3, 8, 8, 0, 0],
        [3, 3, 2, 1, 2, 3, 4, 8, 0, 0, 0, 0, 0, 0, 0, 1, 3, 5, 0, 4, 5, 3, 5, 0],
        [3, 7, 33, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        // A truncated record, a record with a changed bit, and bytes that neither side sent.
        [5, 9, 2, 0, 3, 1, 0], [5, 9, 2, 1, 3, 0, 0], [0, 4, 0x42, 0x4C, 0x53, 0x31],
        // Silence: time passes, and at most keep-alives arrive.
        [8, 6, 8, 7, 1, 0, 8, 9, 1, 0, 8, 9],
        // The peer changes its key, and changes it again too early.
        [14, 3, 5, 0, 1, 0, 3, 0, 1, 9, 1, 0, 6, 3, 5, 0, 1, 0],
        // The peer sends two long messages; the application takes them late; the link is lost.
        [4, 254, 4, 254, 1, 0, 8, 7, 8, 7, 6, 6, 11, 1],
    ]
}
