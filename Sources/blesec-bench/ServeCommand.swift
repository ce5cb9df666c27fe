internal import BLESec
internal import BLESecToolKit

/// `blesec-bench serve ENDPOINT`
enum ServeCommand {
    /// The most links that are served at the same time; further links wait in the kernel.
    private static let mostLinks = 16

    private static let adapter = Option(
        name: "--adapter", value: "HCI",
        help: "Listen on this Bluetooth adapter, such as hci1. The default is all adapters.")

    static let command = Command(
        name: "blesec-bench serve", summary: "be the other end of a measured link",
        operands: ["ENDPOINT"],
        options: [adapter],
        description: [
            "Listens on ENDPOINT, which is l2cap:any, unix:PATH or unix-seqpacket:PATH. "
                + "`blesec-bench --connect` at the other end asks this command to take messages, "
                + "or to send them back. As soon as a peer can dial, a line on standard error "
                + "names the endpoint to connect to.",
            "Makes a key for this run alone, and serves any peer, with or without encryption, "
                + "until a signal ends the command.",
        ],
        examples: [
            "blesec-bench serve l2cap:any": "Serve over Bluetooth, on a free PSM.",
            "blesec-bench serve unix:/tmp/bench": "Serve another process on this machine.",
        ],
        statuses: [
            .success, .usage, .noPeer, .software, .cannotCreate, .inputOutput, .protocolError,
            .untrusted, .hungUp, .interrupted, .terminated,
        ], run: run)

    private static func run(_ arguments: Arguments) async throws(ChannelError) {
        // An address in ENDPOINT names the adapter already.
        if !arguments.operands[0].hasPrefix("l2cap:any") {
            try arguments.refuse([adapter], "goes with l2cap:any")
        }
        let endpoint = try LinkTarget.endpoint(arguments.operands[0], arguments, adapter)
        let loop = EventLoop.shared
        do throws(LinkError) {
            let (listener, local) = try await endpoint.listen(loop: loop)
            Diagnostics.note("listening on \(local)", "listening")
            await serve(listener, loop)
        } catch {
            throw ChannelError(listening: error)
        }
    }

    private static func serve(_ listener: any LinkListener, _ loop: EventLoop) async {
        await withTaskGroup(of: Void.self) { group in
            var linkCount = 0
            await listener.acceptAll(on: loop) { link in
                linkCount += 1
                group.addTask(executorPreference: loop) { await serve(link) }
                if linkCount == mostLinks {
                    await group.next()
                    linkCount -= 1
                }
            }
        }
    }

    private static func serve(_ link: any Link) async {
        do {
            try await Responder.serve(link)
        } catch {
            Diagnostics.print(ChannelError(bench: error))
        }
        link.close()
    }
}
