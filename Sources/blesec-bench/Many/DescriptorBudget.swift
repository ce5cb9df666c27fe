/// The descriptors that the process may have open at the same time.
struct DescriptorBudget: Sendable {
    let limit: Int

    /// How many descriptors are kept free for other files.
    private static let reserve = 64

    /// Whether a measurement may open `count` descriptors at the same time.
    func permits(_ count: Int) -> Bool { count + Self.reserve <= limit }
}
