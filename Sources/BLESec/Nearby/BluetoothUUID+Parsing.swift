public import BLESecChannelCore
public import BLESecDiscovery

extension BluetoothUUID {
    /// The service that blesec's tools advertise by default.
    public static let blesec = BluetoothUUID(
        high: 0x5D33_9621_A61D_45FC, low: 0x989A_C49E_8747_2DC2)

    /// Parses the full form, or the 4 or 8 digits of an assigned UUID, in upper or lower case.
    ///
    /// - Throws: `configuration` for anything else.
    public init(parsing text: String) throws(ChannelError) {
        guard let value = BluetoothUUID(text) else {
            throw ChannelError(
                .configuration,
                "\"\(text)\" is no UUID: write 36 characters such as `uuidgen` prints, or the 4 or "
                    + "8 digits of an assigned one")
        }
        self = value
    }
}
