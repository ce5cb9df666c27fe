// Primitives
