import BLESecLinks
import BLESecTesting
import Glibc
import Testing

@testable import BLESecL2CAP

extension Laboratory {
    @Suite(.serialized) struct Channels {
        @Test("both adapters are found, and are on")
        func adapters() throws {
            let names = try Adapter.all().filter(\.isUp).map(\.name)
            #expect(names.starts(with: ["hci0", "hci1"]))
        }

        @Test("a channel has the default SDU size, names the peer, and carries bytes both ways")
        func opens() async throws {
            try await withChannel { channel in
                let (dialed, accepted) = (channel.dialed, channel.accepted)
                #expect(dialed.maximumSDU == L2CAPSocket.maximumSDU)
                #expect(accepted.maximumSDU == L2CAPSocket.maximumSDU)
                #expect(channel.listener.localAddress.psm.isDynamic)
                let (hci0, hci1) = (try Adapter.named("hci0"), try Adapter.named("hci1"))
                #expect(channel.listener.localAddress.device == hci1.address)
                #expect(dialed.peerDescription.hasPrefix("\(hci1.address)"))
                #expect(accepted.peerDescription.hasPrefix("\(hci0.address)"))
                #expect(accepted.peerAddress != nil)
                try #expect(dialed.receive().outcome == .wouldBlock)
                try await dialed.exchange(sending: [1, 2, 3])
                try #expect(await accepted.exchange(receiving: 3) == [1, 2, 3])
                try await accepted.exchange(sending: [4])
                try #expect(await dialed.exchange(receiving: 1) == [4])
                #expect(!dialed.halfClose())
            }
        }

        @Test("a receiver's smaller MTU limits the SDUs that its peer sends")
        func smallMTU() async throws {
            try await withChannel(receiveMTU: 100) { channel in
                #expect(channel.dialed.maximumSDU == 100)
                let error = #expect(throws: LinkError.self) {
                    try channel.dialed.send([UInt8](repeating: 0, count: 101))
                }
                #expect(error?.code == .tooLarge)
                let bytes = [UInt8](repeating: 1, count: 1_000)
                async let arrived = channel.accepted.exchange(receiving: bytes.count)
                try await channel.dialed.exchange(sending: bytes, sdu: 100)
                try #expect(await arrived == bytes)
            }
        }

        @Test(
            "bytes sent both ways at the same time arrive unchanged",
            arguments: [23, 672, L2CAPSocket.maximumSDU])
        func bulk(_ sdu: Int) async throws {
            try await withChannel { channel in
                var random = SeededGenerator(seed: UInt64(sdu))
                let size = sdu == 23 ? 8_192 : 131_072
                let (dialerBytes, acceptorBytes) = (random.bytes(size), random.bytes(size))
                async let atAcceptor = channel.accepted.exchange(
                    sending: acceptorBytes, sdu: sdu, receiving: size)
                let atDialer = try await channel.dialed.exchange(
                    sending: dialerBytes, sdu: sdu, receiving: size)
                #expect(atDialer == acceptorBytes)
                try #expect(await atAcceptor == dialerBytes)
            }
        }

        @Test("bytes arrive unchanged through a small send buffer")
        func smallSendBuffer() async throws {
            try await withChannel { channel in
                try Socket.setOption(
                    channel.dialed.fileDescriptor, SOL_SOCKET, SO_SNDBUF, to: 4_096)
                var random = SeededGenerator(seed: 7)
                let bytes = random.bytes(32_768)
                async let arrived = channel.accepted.exchange(receiving: bytes.count)
                try await channel.dialed.exchange(sending: bytes)
                try #expect(await arrived == bytes)
            }
        }

        @Test("a sender blocks while its peer does not read; then the peer receives everything")
        func backpressure() async throws {
            try await withChannel { channel in
                // The credits end in the middle of one of these SDUs, so the last SDU is sent only
                // in part.
                let sdu = [UInt8](repeating: 5, count: 2_500)
                var sent = 0
                var blockedSends = 0
                while blockedSends < 5 {
                    if try channel.dialed.send(sdu) > 0 {
                        sent += sdu.count
                        blockedSends = 0
                    } else {
                        blockedSends += 1
                        try await channel.loop.sleep(for: .milliseconds(100))
                    }
                    #expect(sent < 4_000_000)
                }
                #expect(!channel.dialed.isDrained)
                try #expect(await channel.accepted.exchange(receiving: sent).count == sent)
                while !channel.dialed.isDrained {
                    try await channel.loop.sleep(for: .milliseconds(10))
                }
            }
        }

        @Test(
            "a short queue holds about 16 KiB, but at least two SDUs, and can be made long and short again",
            arguments: [672, L2CAPSocket.maximumSDU, L2CAPSocket.maximumReceiveMTU])
        func shortQueue(_ sdu: Int) async throws {
            try await withGenerousPeer(maximumSDU: sdu) { dialed, accepted in
                let bytes = [UInt8](repeating: 1, count: sdu)
                /// Sends until the link takes nothing more, and returns the number of bytes taken.
                func fill() throws -> Int {
                    var total = 0
                    while total < 1_000_000, case let count = try dialed.send(bytes), count > 0 {
                        #expect(count == sdu)
                        total += count
                    }
                    return total
                }
                dialed.keepsQueueShort = true
                // From SDUs that it has sent, the link learns how large the buffer of a short queue
                // must be. So the link has to send some SDUs first.
                async let first = accepted.exchange(receiving: 65_536)
                try await dialed.exchange(sending: [UInt8](repeating: 2, count: 65_536), sdu: sdu)
                try #expect(await first.count == 65_536)
                while !dialed.isDrained { try await dialed.loop.sleep(for: .milliseconds(10)) }
                // While the controllers' process is stopped, nothing leaves the queue.
                try #expect(run("/usr/bin/killall", "-STOP", "btvirt") == 0)
                let shortFill = Result { try fill() }
                dialed.keepsQueueShort = false
                let restFill = Result { try fill() }
                dialed.keepsQueueShort = true
                let refusedSend = Result { try dialed.send(bytes) }
                try #expect(run("/usr/bin/killall", "-CONT", "btvirt") == 0)
                let shortSize = try shortFill.get()
                #expect(shortSize >= max(12 << 10, 2 * sdu), "\(shortSize)")
                #expect(shortSize <= (16 << 10) + sdu, "\(shortSize)")
                let longSize = try shortSize + restFill.get()
                #expect(longSize > 40 << 10, "\(longSize)")
                // The queue is longer than a short queue may be, so the link took nothing. The link
                // takes more when the queue has become short.
                try #expect(refusedSend.get() == 0)
                async let arrived = accepted.exchange(receiving: longSize + 65_536)
                try await dialed.exchange(sending: [UInt8](repeating: 3, count: 65_536), sdu: sdu)
                try #expect(await arrived.count == longSize + 65_536)
            }
        }

        @Test("the end follows the data if the peer closes after its send queue is empty")
        func end() async throws {
            try await withChannel { channel in
                let bytes = [UInt8](repeating: 1, count: 2_500)
                try await channel.dialed.exchange(sending: bytes)
                while !channel.dialed.isDrained {
                    try await channel.loop.sleep(for: .milliseconds(10))
                }
                channel.dialed.close()
                // More bytes are awaited than were sent, so the exchange returns at the link's end.
                try #expect(await channel.accepted.exchange(receiving: 5_001) == bytes)
                #expect(!channel.accepted.wantsRead)
                try #expect(channel.accepted.receive().outcome == .end)
                #expect(throws: LinkError.self) { try channel.accepted.send([1]) }
            }
        }

        @Test("a link that is cut ends on both sides within five seconds")
        func cut() async throws {
            try await withChannel { channel in
                let peer = try Adapter.named("hci1").address.description
                try #expect(run("/usr/bin/python3", "lab/mgmt.py", "disconnect", peer, "hci0") == 0)
                let start = channel.loop.now
                try #expect(await channel.dialed.exchange(receiving: 1).isEmpty)
                try #expect(await channel.accepted.exchange(receiving: 1).isEmpty)
                #expect(channel.loop.now.duration(since: start) < .seconds(5))
            }
        }

        @Test("dialing a PSM without a listener is refused, and the error names the PSM")
        func wrongPSM() async throws {
            try await withLoop { loop in
                let address = L2CAPAddress(
                    device: try Adapter.named("hci1").address, psm: try PSM(0xF3))
                let error = await #expect(throws: LinkError.self) {
                    try await SocketLink.dial(
                        address, from: Adapter.named("hci0"),
                        deadline: loop.now.advanced(by: .seconds(10)), loop: loop)
                }
                #expect(error?.code == .refused)
                #expect(error?.reason.contains("0xF3") == true)
                #expect(loop.load.sources == 0)
            }
        }

        @Test("a dial to an absent device ends at its deadline, or when its task is cancelled")
        func absent() async throws {
            try await withLoop { loop in
                let address = try L2CAPAddress(parsing: "00:11:22:33:44:55/0x80")
                let adapter = try Adapter.named("hci0")
                let start = loop.now
                var error = await #expect(throws: LinkError.self) {
                    try await SocketLink.dial(
                        address, from: adapter,
                        deadline: start.advanced(by: .milliseconds(300)), loop: loop)
                }
                #expect(error?.code == .timedOut)
                #expect(loop.now.duration(since: start) < .seconds(2))
                let task = Task {
                    try await SocketLink.dial(
                        address, from: adapter, deadline: .distantFuture, loop: loop)
                }
                await loop.settle()
                task.cancel()
                error = await #expect(throws: LinkError.self) { try await task.value }
                #expect(error?.code == .cancelled)
                #expect(loop.load.sources == 0)
                #expect(loop.load.timers == 0)
            }
        }

        @Test("a listener uses the requested PSM, and a second listener on this PSM is refused")
        func takenPSM() async throws {
            try await withLoop { loop in
                let adapter = try Adapter.named("hci1")
                let psm = try PSM(0xD5)
                let first = try L2CAPListener.listen(psm: psm, on: adapter, loop: loop)
                #expect(first.localAddress.psm == psm)
                #expect(first.localDescription == "l2cap:\(adapter.address)/0xD5")
                let error = #expect(throws: LinkError.self) {
                    try L2CAPListener.listen(psm: psm, on: adapter, loop: loop)
                }
                #expect(error?.code == .addressInUse)
                await first.close()
                let laterListener = try L2CAPListener.listen(psm: psm, on: adapter, loop: loop)
                await laterListener.close()
            }
        }

        @Test("when all dynamic PSMs are in use, the error says so")
        func exhausted() async throws {
            try await withLoop { loop in
                let adapter = try Adapter.named("hci1")
                var listeners: [L2CAPListener] = []
                for _ in 0..<128 {
                    listeners.append(try L2CAPListener.listen(on: adapter, loop: loop))
                }
                let error = #expect(throws: LinkError.self) {
                    try L2CAPListener.listen(on: adapter, loop: loop)
                }
                #expect(error?.code == .unavailable)
                #expect(error?.reason.contains("128") == true)
                for listener in listeners { await listener.close() }
                #expect(loop.load.sources == 0)
            }
        }

        @Test("a missing adapter is an error with the names of the existing adapters")
        func unknownAdapter() throws {
            let error = #expect(throws: LinkError.self) { try Adapter.named("hci9") }
            #expect(error?.code == .noSuchAdapter)
            #expect(error?.reason.contains("hci1") == true)
        }

        @Test("20 consecutive channels leave no file descriptor open")
        func noLeak() async throws {
            func descriptors() -> Int { (0..<1_024).count { fcntl(Int32($0), F_GETFD) >= 0 } }
            try await withChannel { _ in }
            let before = descriptors()
            for _ in 0..<20 { try await withChannel { _ in } }
            #expect(descriptors() <= before)
        }
    }
}
