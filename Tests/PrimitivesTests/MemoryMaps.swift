import Glibc

/// How many memory maps this process has, from `/proc/self/maps`.
func memoryMaps() -> Int {
    let file = unsafe fopen("/proc/self/maps", "r")
    defer { if let file = unsafe file { unsafe _ = fclose(file) } }
    guard let file = unsafe file else { return .max }
    var lines = 0
    while true {
        let character = unsafe fgetc(file)
        if character == EOF { return lines }
        if character == 10 { lines += 1 }
    }
}
