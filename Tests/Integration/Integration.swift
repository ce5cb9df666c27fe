import Testing

/// Tests that run the built tools, one test at a time. Each test blocks its thread while it waits
/// for processes; in parallel, these tests would block the few threads that all tests share.
@Suite(.serialized) enum Integration {}
