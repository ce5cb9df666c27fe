// Noise
