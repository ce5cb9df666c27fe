// BLESec
