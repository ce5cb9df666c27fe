import Testing

@testable import blesec_bench

@Suite struct StatisticsTests {
    @Test("the median is the middle sample, or the mean of the middle two")
    func median() {
        #expect([4.0, 1, 3, 2].median == 2.5)
        #expect([7.0].median == 7)
        #expect([3.0, 1, 2].median == 2)
    }

    @Test("a summary's spread is the interquartile range divided by the median")
    func spread() {
        let summary = Summary([1, 2, 3, 4, 5])
        #expect(summary == Summary([5, 3, 1, 4, 2]))
        #expect(summary.median == 3)
        #expect(summary.least == 1)
        #expect(summary.most == 5)
        #expect(summary.spread == 2.0 / 3)
        #expect(Summary([0, 0]).spread == 0)
    }

    @Test("percentile N of the 101 samples 0 to 100 is N")
    func percentiles() {
        let percentiles = LinkScenario.Percentiles((0...100).reversed().map(Double.init))
        #expect(percentiles.p50 == 50)
        #expect(percentiles.p90 == 90)
        #expect(percentiles.p99 == 99)
        #expect(percentiles.longest == 100)
    }
}

@Suite struct TableTests {
    @Test(
        "numbers are right-aligned, words are left-aligned, and no line ends in spaces")
    func columns() {
        var table = Table(["size", "MB/s", "note"], words: [0, 2])
        table.append(["64 B", "1.00", "a"])
        table.append(["16 KiB", "1234", ""])
        #expect(
            table.text == """
                size    MB/s  note
                64 B    1.00  a
                16 KiB  1234

                """)
    }

    @Test(
        "numbers are rounded to the requested number of decimal places",
        arguments: [
            (1.005, 1, "1.0"), (0.96, 1, "1.0"), (-0.04, 1, "0.0"), (-1.25, 1, "-1.3"),
            (12.0, 0, "12"), (0.049, 2, "0.05"), (.infinity, 2, "-"), (1e300, 2, "1e+300"),
            (-1e300, 2, "-1e+300"), (9e18, 0, "9000000000000000000"), (9e18, 1, "9e+18"),
        ])
    func fixed(_ number: Double, _ digits: Int, _ text: String) {
        #expect(number.fixed(digits) == text)
    }

    @Test("a size is printed in the largest unit that divides it")
    func sizes() {
        #expect(
            [1, 1_000, 1_024, 65_519, 1 << 20].map(\.bytes) == [
                "1 B", "1000 B", "1 KiB", "65519 B", "1 MiB",
            ])
    }
}

@Suite struct RequestTests {
    @Test("an encoded request is decoded unchanged")
    func roundTrip() throws {
        let request = Request(.echo, count: 70_000, size: 1 << 20)
        #expect(try Request(request.encoded) == request)
    }

    @Test(
        "a request of a wrong length or an unknown kind is refused",
        arguments: [[], [1], [9] + [0, 0, 0, 0, 0, 0, 0, 0]])
    func malformed(_ bytes: [UInt8]) {
        #expect(throws: BenchError.self) { try Request(bytes) }
    }
}
