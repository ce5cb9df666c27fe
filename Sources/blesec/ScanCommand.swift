internal import BLESec
internal import BLESecLocking
internal import BLESecToolKit
internal import Glibc

/// `blesec scan`
enum ScanCommand {
    private static let duration = Option(
        name: "--for", value: "SECONDS",
        help: "Stop after this time, with exit status 0, or 75 if bluetoothd has not answered by "
            + "then. By default the scan goes on until a signal ends it.")

    static let command = Command(
        name: "blesec scan", summary: "show the devices nearby that advertise a service",
        options: [
            NearbyArguments.service, ChannelOptions.adapter, duration, NearbyArguments.rescan,
            .json,
        ],
        description: [
            "Scans through bluetoothd and shows each peer that advertises the service: its "
                + "address, the random tag of its advertisement, where to dial, what the peer can "
                + "do, how strong its signal is and how often it was heard. On a terminal, the "
                + "output is a table that is kept up to date, with the 20 peers of the strongest "
                + "signals, or as many as fit. Elsewhere, the output is a line for each peer that is "
                + "new or has changed its advertisement.",
            "Nothing in an advertisement is proven: anyone can advertise anything. `blesec "
                + "connect` finds out who the peer is.",
        ],
        examples: [
            "blesec scan": "Watch the peers that offer blesec's own service.",
            "blesec scan --for 20 --json": "List these peers for a script.",
        ],
        statuses: [
            .success, .usage, .noPeer, .inputOutput, .timedOut, .protocolError, .untrusted, .hungUp,
            .interrupted, .terminated,
        ], run: run)

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        try await Interruption().cancelling { () async throws(ChannelError) in
            try await scan(arguments)
        }
    }

    private static func scan(_ arguments: Arguments) async throws(ChannelError) {
        let service = try NearbyArguments.service(arguments)
        let rescan = try Seconds.read(arguments, NearbyArguments.rescan)
        let limit = try TimeLimit(arguments, duration)?.begun
        let isTable = !arguments.has(.json) && Terminal.canRedraw(STDOUT_FILENO)
        let list = Locked(PeerList(isTable: isTable))
        if isTable {
            // A message is printed in place of the table, which is drawn again below the message.
            Diagnostics.show { printLine in
                list.withLock { list in
                    try? StandardOutput.print(list.erasing())
                    printLine()
                }
            }
        }
        defer { Diagnostics.show(by: nil) }
        let name = arguments.value(ChannelOptions.adapter)
        let (bluetoothd, adapter, scan) = try await TimeLimit.askBluetoothd(within: limit) {
            () async throws(ChannelError) in
            try await start(on: name, service, rescan)
        }
        let states = Task(executorPreference: EventLoop.shared) {
            var last = await adapter.state
            while let state = try? await adapter.state(otherThan: last) {
                NearbyNotes.adapter(state)
                last = state
            }
        }
        let stop = Task(executorPreference: EventLoop.shared) {
            guard let limit else { return }
            try? await limit.wait()
            await bluetoothd.close()
        }
        // The table is drawn at regular intervals, since the peers' ages change all the time.
        let drawing = Task(executorPreference: EventLoop.shared) { () -> ChannelError? in
            while isTable, !Task.isCancelled {
                do throws(ChannelError) {
                    try list.withLock { list throws(ChannelError) in
                        try list.draw(at: EventLoop.shared.now)
                    }
                } catch {
                    await bluetoothd.close()
                    return error
                }
                try? await EventLoop.shared.sleep(for: PeerList.redrawInterval)
            }
            return nil
        }
        var failure: ChannelError?
        for await sighting in scan.sightings {
            do throws(ChannelError) {
                try list.withLock { list throws(ChannelError) in
                    try list.show(sighting, at: EventLoop.shared.now)
                }
            } catch {
                failure = error
                break
            }
        }
        for task in [states, stop] { task.cancel() }
        drawing.cancel()
        failure = await drawing.value ?? failure
        try list.withLock { list throws(ChannelError) in
            if failure == nil { try list.draw(at: EventLoop.shared.now) }
        }
        await bluetoothd.close()
        if let failure { throw failure }
        if Task.isCancelled { throw ChannelError(.cancelled, "the scan was ended") }
    }

    /// Begins to scan with the adapter `name`; if `name` is nil, with the first adapter that is on.
    private static func start(
        on name: String?, _ service: BluetoothUUID, _ rescan: Duration?
    ) async throws(ChannelError) -> (Bluetoothd, BluetoothAdapter, ServiceScan) {
        let bluetoothd = await Bluetoothd.connect()
        do throws(DiscoveryError) {
            let adapter = try await bluetoothd.adapter(name)
            let scan = try await adapter.scan(for: service, anewEvery: rescan)
            return (bluetoothd, adapter, scan)
        } catch {
            throw ChannelError(discovery: error)
        }
    }
}
