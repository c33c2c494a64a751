"""Joint runs: members, plans, policies, links and the engine that computes on shares."""
