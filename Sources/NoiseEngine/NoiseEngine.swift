// NoiseEngine
