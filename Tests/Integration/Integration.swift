import Testing

/// Tests that run the built tools, one after another: each test blocks its thread while it waits
/// for processes, and all tests of all modules share a few threads.
@Suite(.serialized) enum Integration {}
