// BLESecTesting
