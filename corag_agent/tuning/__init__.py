"""Search for good options of `corag fit` with Optuna: `corag tune`."""
