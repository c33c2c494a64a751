"""Private PCA: the classical mechanisms, the stochastic methods, and the spectrum that they tell."""
