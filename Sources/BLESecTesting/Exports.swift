@_exported public import struct BLESecPrimitives.SeededGenerator
