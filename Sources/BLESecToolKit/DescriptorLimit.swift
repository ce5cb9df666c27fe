internal import Glibc

/// The limit on the descriptors of the process (RLIMIT_NOFILE).
package enum DescriptorLimit {
    /// Raises the soft limit, often 1,024, to the hard limit, and returns the limit that is then in
    /// force. Only tools do this; a library leaves the limit to its program.
    @discardableResult
    package static func raise() -> Int {
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        var limit = rlimit()
        guard unsafe getrlimit(resource, &limit) == 0 else { return 1_024 }
        if limit.rlim_cur < limit.rlim_max {
            var raised = limit
            raised.rlim_cur = raised.rlim_max
            if unsafe setrlimit(resource, &raised) == 0 { limit = raised }
        }
        return Int(clamping: limit.rlim_cur)
    }
}
