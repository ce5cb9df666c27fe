// BLESec is the only module that an app has to import: it re-exports what an app needs of the other
// modules.
@_exported public import BLESecChannelCore
@_exported public import BLESecCredentials
@_exported public import BLESecDiscovery
@_exported public import BLESecL2CAP
@_exported public import BLESecLinks
@_exported public import class BLESecNoise.PreSharedKey
@_exported public import struct BLESecNoise.ProtocolName
@_exported public import class BLESecTLSEngine.CertificateAuthorities
@_exported public import struct BLESecTLSEngine.RevocationList
@_exported public import protocol BLESecTLSEngine.RevocationSource
@_exported public import class BLESecTLSEngine.TLSContext
@_exported public import class BLESecTLSEngine.TLSIdentity
@_exported public import struct BLESecTLSEngine.TLSOptions
