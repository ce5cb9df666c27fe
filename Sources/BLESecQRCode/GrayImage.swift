internal import CBLESecPNG

/// An image of 8-bit gray pixels.
package struct GrayImage {
    /// The width in pixels.
    package let width: Int
    /// The height in pixels.
    package let height: Int
    private var pixels: [UInt8]

    /// Makes an image in which every pixel has the same shade, from 0 for black to 255 for white.
    /// Each side has 1 to 65,535 pixels.
    package init(width: Int, height: Int, shade: UInt8) {
        precondition(
            1...0xFFFF ~= width && 1...0xFFFF ~= height, "a side has 1 to 65,535 pixels")
        self.width = width
        self.height = height
        pixels = Array(repeating: shade, count: width * height)
    }

    /// Draws a rectangle in one shade. The rectangle must be inside the image.
    package mutating func fill(rows: Range<Int>, columns: Range<Int>, shade: UInt8) {
        precondition(
            columns.lowerBound >= 0 && columns.upperBound <= width,
            "a rectangle must be inside the image")
        // A row outside the image fails the bounds check of `pixels`.
        for row in rows {
            for column in columns { pixels[row * width + column] = shade }
        }
    }

    /// The image as a PNG file.
    package func png() -> [UInt8] {
        // If libpng gets nil instead of memory, it only counts the file's bytes.
        var size = 0
        var isWritten = unsafe write(to: nil, &size)
        var file = [UInt8](repeating: 0, count: size)
        if isWritten {
            isWritten = unsafe file.withUnsafeMutableBytes {
                unsafe write(to: $0.baseAddress, &size)
            }
        }
        guard isWritten, size == file.count else { preconditionFailure("no memory for an image") }
        return file
    }

    /// Writes the PNG file to `memory`, which has `size` bytes, and sets `size` to the file's
    /// length. With nil, only sets `size`. Returns whether libpng has succeeded.
    private func write(to memory: UnsafeMutableRawPointer?, _ size: inout Int) -> Bool {
        var image = unsafe png_image()
        unsafe image.version = UInt32(PNG_IMAGE_VERSION)
        unsafe image.width = UInt32(width)
        unsafe image.height = UInt32(height)
        unsafe image.format = UInt32(PNG_FORMAT_GRAY)
        return unsafe png_image_write_to_memory(&image, memory, &size, 0, pixels, 0, nil) == 1
    }
}
