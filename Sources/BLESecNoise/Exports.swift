// Types of the primitives module that appear in this module's interface are exported again.
@_exported public import enum BLESecPrimitives.AEADAlgorithm
@_exported public import enum BLESecPrimitives.CryptoError
@_exported public import enum BLESecPrimitives.Curve
@_exported public import class BLESecPrimitives.DHKeyPair
@_exported public import enum BLESecPrimitives.HashAlgorithm
@_exported public import struct BLESecPrimitives.SecretBytes
