/// A plot of several series over the message size.
struct Panel {
    /// The values at one message size.
    struct Point {
        var size: Int
        var value: Double
        /// Percentiles above `value`, in ascending order. A bar rises from `value` to the last of
        /// them, and has a mark at each.
        var upperPercentiles: [Double] = []
    }

    struct Series {
        var name: String
        var points: [Point]
        /// Whether the series is the limit with which the others are compared.
        var isLimit = false
    }

    var title: String
    /// The quantity and its unit, as a text above the vertical axis.
    var unit: String
    var series: [Series]

    static let size = (width: 460.0, height: 320.0)
    private static let margin = (left: 58.0, right: 16.0, top: 72.0, bottom: 40.0)

    /// Draws the panel with its upper left corner at the given point.
    func draw(into drawing: inout Drawing, x: Double, y: Double) {
        let (left, right) = (x + Self.margin.left, x + Self.size.width - Self.margin.right)
        let (top, bottom) = (y + Self.margin.top, y + Self.size.height - Self.margin.bottom)
        let points = series.flatMap(\.points)
        let sizes = Set(points.map(\.size)).sorted()
        guard let least = sizes.first, let most = sizes.last else { return }
        let xAxis = Axis(
            least: Double(least), most: Double(most), start: left + 14, end: right - 14)
        let yAxis = Axis(points.flatMap { [$0.value] + $0.upperPercentiles }, from: bottom, to: top)
        drawing.text(title, .title, x: x + 8, y: y + 24)
        drawing.text(unit, .small, x: x + 8, y: top - 10)
        for tick in yAxis.ticks {
            let tickY = yAxis.position(tick)
            drawing.line(.grid, left, tickY, right, tickY)
            drawing.text(tick.plain, .small, x: left - 6, y: tickY + 4, anchor: "end")
        }
        for size in sizes {
            let tickX = xAxis.position(Double(size))
            drawing.line(.axis, tickX, bottom, tickX, bottom + 4)
            drawing.text(size.bytes, .small, x: tickX, y: bottom + 18, anchor: "middle")
        }
        drawing.line(.axis, left, bottom, right, bottom)
        drawing.line(.axis, left, top, left, bottom)
        drawLegend(&drawing, x: x + 8, y: y + 44)
        for (index, series) in series.enumerated() {
            draw(series, colour(index), index: Double(index), &drawing, xAxis, yAxis)
        }
    }

    /// The number of a series' colour; nil for a limit, which has a style of its own.
    private func colour(_ index: Int) -> Int? {
        series[index].isLimit ? nil : series[..<index].count { !$0.isLimit }
    }

    private func drawLegend(_ drawing: inout Drawing, x: Double, y: Double) {
        var x = x
        for (index, series) in series.enumerated() {
            let style = colour(index).map(Drawing.Style.series) ?? .limit
            drawing.polyline(style, [(x: x, y: y - 4), (x: x + 22, y: y - 4)])
            drawing.text(series.name, .small, x: x + 27, y: y)
            // Allows a width of 6.8 for each character in the style `small`.
            x += 27 + 6.8 * Double(series.name.count) + 12
        }
    }

    private func draw(
        _ series: Series, _ colour: Int?, index: Double, _ drawing: inout Drawing,
        _ xAxis: Axis, _ yAxis: Axis
    ) {
        let hasBars = series.points.contains { !$0.upperPercentiles.isEmpty }
        // Without a shift, the bars of several series would cover each other.
        let shift = hasBars ? 7 * (index - Double(self.series.count - 1) / 2) : 0
        let places = series.points.map { point in
            (x: xAxis.position(Double(point.size)) + shift, y: yAxis.position(point.value))
        }
        drawing.polyline(colour.map(Drawing.Style.series) ?? .limit, places)
        let style = colour.map(Drawing.Style.series) ?? .axis
        for (point, place) in zip(series.points, places) {
            if let colour { drawing.dot(place.x, place.y, series: colour) }
            guard let last = point.upperPercentiles.last else { continue }
            drawing.line(style, place.x, place.y, place.x, yAxis.position(last))
            for tickY in point.upperPercentiles.map(yAxis.position) {
                drawing.line(style, place.x - 3, tickY, place.x + 3, tickY)
            }
        }
    }
}

extension Double {
    /// A number without superfluous digits: `0.5`, `20`, `1000`.
    fileprivate var plain: String { self >= 1 ? fixed(0) : fixed(self >= 0.1 ? 1 : 2) }
}
