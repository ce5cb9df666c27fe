// The one module that an app imports: what it needs of the others comes along.
@_exported public import ChannelCore
@_exported public import Credentials
@_exported public import Discovery
@_exported public import L2CAP
@_exported public import Links
@_exported public import struct Noise.ProtocolName
@_exported public import class Noise.PreSharedKey
@_exported public import class TLSEngine.CertificateAuthorities
@_exported public import protocol TLSEngine.RevocationSource
@_exported public import struct TLSEngine.RevocationList
@_exported public import class TLSEngine.TLSContext
@_exported public import class TLSEngine.TLSIdentity
@_exported public import struct TLSEngine.TLSOptions
