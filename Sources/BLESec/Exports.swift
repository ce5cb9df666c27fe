// The one module that an app imports: what it needs of the others comes along.
@_exported public import ChannelCore
@_exported public import Credentials
@_exported public import L2CAP
@_exported public import Links
@_exported public import struct Noise.ProtocolName
@_exported public import class Noise.PreSharedKey
