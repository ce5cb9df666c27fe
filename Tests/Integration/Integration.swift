import Testing

/// Everything that runs the built tools, one test after another: each blocks its thread while it
/// waits for processes, and there are only a few threads for all tests of all modules.
@Suite(.serialized) enum Integration {}
