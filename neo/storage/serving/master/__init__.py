"""What the primary master sends: one part for each phase, and the handler that routes to them."""
