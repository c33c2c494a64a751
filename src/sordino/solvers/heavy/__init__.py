"""Learning and estimation from data with only a (1+v)-th moment.

References: Tao, Wu, Cheng, Wang, "Private Stochastic Convex Optimization and Sparse Learning with
Heavy-tailed Data Revisited" (2022): Algorithms 1 (truncated mean), 2 (DP-SCO), 3 (median of means),
4 (peeling) and 5 (sparse optimisation).
"""
