internal import BLESec
internal import BLESecToolKit

/// The page blesec(7): what several commands have in common.
enum Concepts {
    static let page = ManualPage(
        guide: "blesec", summary: "endpoints, keys, peers and exit statuses of blesec",
        sections: [
            .init("DESCRIPTION", [.paragraph(introduction)]), .init("ENDPOINTS", endpoints),
            .init("KEYS AND TRUST", trust), .init("MEETING FOR THE FIRST TIME", meeting),
            .init("GUARANTEES", guarantees), .init("ENVIRONMENT", environment),
            .init("FILES", files), .init("EXIT STATUS", statuses),
        ])

    private static let introduction =
        "A channel connects two devices. When the channel is ready, both have proven their keys, and "
        + "all that they send is encrypted. One side listens and the other dials, or both look for "
        + "each other over Bluetooth LE. This page explains what the commands have in common."

    private static let endpoints: [ManualPage.Block] = [
        .paragraph("An ENDPOINT says where a listener is:"),
        .entry(
            "l2cap:AA:BB:CC:DD:EE:FF/0x80",
            "A Bluetooth device by its address, and the PSM at which it listens. --address-type says "
                + "that the address is random. PSMs of apps are 0x80 to 0xFF."),
        .entry(
            "l2cap:any, l2cap:any/0x85",
            "To listen at every Bluetooth adapter, at a free PSM or at the given one."),
        .entry(
            "unix:PATH",
            "A Unix socket on this machine, which carries a stream of bytes. Only the user who "
                + "listens there, and root, can dial it."),
        .entry(
            "unix-seqpacket:PATH", "The same, but the socket carries packets, as L2CAP does."),
        .paragraph("Some commands also take, in place of an ENDPOINT:"),
        .entry(
            "service:UUID",
            "Any accepted peer nearby that advertises this GATT service. bluetoothd has to run. "
                + "`connect`, `send`, `receive` and `pair` take this."),
        .entry(
            "peer:NAME",
            "The peer that is remembered by this name. `connect`, `send` and `receive` dial its last "
                + "address, and then look for it. With `chat`, and with --at of `forward`, both sides "
                + "look for each other, and the last address is not dialed."),
        .entry("peer:KEY", "The nearby peer with this key, for the same commands as peer:NAME."),
    ]

    private static let trust: [ManualPage.Block] = [
        .paragraph(
            "A device has a key, which `blesec keygen` makes. The key's fingerprint is SHA256: "
                + "and the digest of the public key. Peers name the device by this fingerprint. A "
                + "command accepts only the peers that its options name: --peer KEY accepts the "
                + "holder of one key, --authority FILE accepts devices with certificates of an "
                + "authority (over TLS), and --anyone accepts whoever is there. With --remember NAME "
                + "the peer is remembered, and from then on only that peer is accepted as NAME."),
        .paragraph(
            "With --anyone the channel is encrypted, but the other end may be an attacker. To make "
                + "sure, use --identity on both sides, and compare the fingerprint that each side "
                + "prints with the one that `blesec pubkey` prints on the other device."),
    ]

    private static let meeting: [ManualPage.Block] = [
        .paragraph(
            "Two people who meet need not copy fingerprints. On one device `blesec pair --name NAME` "
                + "shows six digits; on the other device, enter them with `blesec pair --name NAME "
                + "--code DIGITS`. Both then remember each other, and `blesec chat peer:NAME` and "
                + "other commands find the peer. The page of `blesec pair` also describes "
                + "invitations, which are scanned as QR codes.")
    ]

    private static let guarantees: [ManualPage.Block] = [
        .entry("ready", "Both sides have proven their keys, and each has accepted the other."),
        .entry("sent", "The message was handed to the channel. It may be lost with the link."),
        .entry("delivered", "The peer's program has confirmed the message."),
        .entry(
            "unknown",
            "No confirmation came, and none will: the peer may have the message, or not."),
        .entry(
            "exactly once",
            "With --persist, over any number of lost links, each message arrives once and in order. "
                + "With --store, this also holds when processes end and are started anew."),
    ]

    private static let files: [ManualPage.Block] = [
        .entry(
            "~/.local/state/blesec",
            "The remembered peers, and the key that `blesec pair` makes. If XDG_STATE_HOME is an "
                + "absolute path, the folder is $XDG_STATE_HOME/blesec. --state names another folder. "
                + "Only its owner may have access to the folder.")
    ]

    private static let environment: [ManualPage.Block] = [
        .entry(
            "XDG_STATE_HOME",
            "The parent of the folder with remembered peers, as an absolute path. A relative path is "
                + "ignored, as if the variable were not set."),
        .entry("NO_COLOR", "If it is set and not empty, nothing is coloured."),
        .entry(
            "TERM",
            "If it is `dumb`, empty or not set, nothing is coloured, and no line on a terminal is "
                + "redrawn: no progress is shown, and `blesec scan` shows no table."),
    ]

    private static let statuses: [ManualPage.Block] =
        [
            .paragraph(
                "After SIGINT, SIGTERM or SIGHUP a command ends its channel in good order; another "
                    + "signal, a second or more after the first, ends the command at once. Each "
                    + "command's page lists the command's statuses. Most are those of sysexits(3):"
            )
        ]
        + ExitStatus.allCases.filter { $0 != .becameWorse }.map {
            .entry("\($0.rawValue)", $0.meaning)
        }
}
