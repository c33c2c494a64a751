"""What is printed but not private, or not what it claims: for reproduction, by name only.

A query, mechanism or sampling of this room is :class:`sordino.kernel.Printed`. A plan that holds one names it
in ``Plan.printed``, and a curator opens such a plan only for a caller who names it too. The kernel, the
accountants, the ledger, the executors, the problems and the solvers do not know this room.
"""
