// ChannelCore
