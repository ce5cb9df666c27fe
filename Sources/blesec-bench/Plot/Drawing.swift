/// An SVG document with light and dark colours.
///
/// Elements have classes, and the style sheet sets their colours. A program that does not support
/// `prefers-color-scheme` shows the light colours.
struct Drawing {
    /// The CSS class of an element, or its two classes.
    struct Style {
        fileprivate let name: String

        static let title = Style(name: "title"), small = Style(name: "small")
        static let axis = Style(name: "axis"), grid = Style(name: "grid")
        static let limit = Style(name: "limit"), mark = Style(name: "mark")

        /// A line in the colour of the series with this index.
        static func series(_ index: Int) -> Style { Style(name: "series c\(index % colours)") }
        /// An area in the colour of the series with this index.
        static func fill(_ index: Int) -> Style { Style(name: "fill c\(index % colours)") }

        /// The number of series with colours of their own.
        private static let colours = 5
    }

    let width: Int
    private(set) var height = 0
    private var elements: [String] = []

    init(width: Int) { self.width = width }

    /// Adds space of the given height at the bottom, and returns the upper edge of that space.
    mutating func addSpace(_ space: Int) -> Double {
        defer { height += space }
        return Double(height)
    }

    mutating func text(
        _ text: String, _ style: Style, x: Double, y: Double, anchor: String = "start"
    ) {
        add(
            "text", style, ["x": x, "y": y],
            " text-anchor=\"\(anchor)\">\(Self.escaped(text))</text>")
    }

    mutating func line(_ style: Style, _ x1: Double, _ y1: Double, _ x2: Double, _ y2: Double) {
        add("line", style, ["x1": x1, "y1": y1, "x2": x2, "y2": y2], "/>")
    }

    mutating func polyline(_ style: Style, _ points: [(x: Double, y: Double)]) {
        let list = points.map { "\($0.x.fixed(1)),\($0.y.fixed(1))" }.joined(separator: " ")
        add("polyline", style, [:], " points=\"\(list)\"/>")
    }

    mutating func dot(_ x: Double, _ y: Double, series: Int) {
        add("circle", .fill(series), ["cx": x, "cy": y], " r=\"3\"/>")
    }

    mutating func bar(_ x: Double, _ y: Double, _ width: Double, _ height: Double, series: Int) {
        add(
            "rect", .fill(series), ["x": x, "y": y, "width": max(0, width), "height": height], "/>")
    }

    private mutating func add(
        _ tag: String, _ style: Style, _ numbers: KeyValuePairs<String, Double>, _ ending: String
    ) {
        let attributes = numbers.map { " \($0.key)=\"\($0.value.fixed(1))\"" }.joined()
        elements.append("<\(tag) class=\"\(style.name)\"\(attributes)\(ending)")
    }

    var document: String {
        """
        <?xml version="1.0" encoding="UTF-8"?>
        <svg xmlns="http://www.w3.org/2000/svg" width="\(width)" height="\(height)" \
        viewBox="0 0 \(width) \(height)">
        <style>\(Self.styleSheet)</style>
        <rect class="ground" width="100%" height="100%"/>
        \(elements.joined(separator: "\n"))
        </svg>

        """
    }

    private static let styleSheet = """

        text { font-family: sans-serif; font-size: 12px; fill: #222222; }
        .title { font-size: 15px; font-weight: bold; }
        .small { font-size: 11px; fill: #555555; }
        .ground { fill: #ffffff; }
        .axis { stroke: #555555; stroke-width: 1; }
        .grid { stroke: #dddddd; stroke-width: 1; }
        .limit { stroke: #555555; stroke-width: 2; stroke-dasharray: 6 4; fill: none; }
        .mark { stroke: #111111; stroke-width: 3; }
        .series { stroke-width: 2; fill: none; }
        \(palette(["#0b63ad", "#b3480f", "#2e7d32", "#8e24aa", "#7a6400"]))
        @media (prefers-color-scheme: dark) {
        text { fill: #e6e6e6; }
        .small { fill: #b3b3b3; }
        .ground { fill: #161a1f; }
        .axis, .limit { stroke: #b3b3b3; }
        .mark { stroke: #ffffff; }
        .grid { stroke: #363c44; }
        \(palette(["#6db3f2", "#f2a065", "#7fcf84", "#d79be8", "#d9c45a"]))
        }

        """

    private static func palette(_ colours: [String]) -> String {
        colours.enumerated().map { index, colour in
            ".series.c\(index) { stroke: \(colour); } .fill.c\(index) { fill: \(colour); }"
        }.joined(separator: "\n")
    }

    /// Text escaped for XML. `?` replaces control characters and all characters from U+FFFE on.
    private static func escaped(_ text: String) -> String {
        var result = ""
        for scalar in text.unicodeScalars {
            switch scalar {
            case "&": result += "&amp;"
            case "<": result += "&lt;"
            case ">": result += "&gt;"
            case "\"": result += "&quot;"
            case _ where scalar.value < 0x20 || scalar.value >= 0xFFFE: result += "?"
            default: result.unicodeScalars.append(scalar)
            }
        }
        return result
    }
}
