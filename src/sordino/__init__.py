"""Learning from sensitive, high-dimensional data with privacy guarantees that are true."""
