extension String {
    /// This path as one word of a shell's command line: unchanged if it has only characters that a
    /// shell leaves alone, and otherwise in single quotes.
    var shellWord: String {
        let isPlain = unicodeScalars.allSatisfy { scalar in
            guard scalar.isASCII else { return false }
            return scalar.properties.isAlphabetic || scalar.properties.numericType != nil
                || "/._-+:,@%=".unicodeScalars.contains(scalar)
        }
        // A command would take a word with a dash in front for an option.
        let path = hasPrefix("-") ? "./" + self : self
        if isPlain, !isEmpty { return path }
        return "'" + path.unicodeScalars.map { $0 == "'" ? "'\\''" : String($0) }.joined() + "'"
    }
}
