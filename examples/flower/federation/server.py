"""What runs at the server: averages and thresholds; it never sees a record."""

import json
from pathlib import Path

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from sordino.parties.flower import FederatedRecipe, FederatedResult, HardThresholdAveraging, server_app

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds and write the model with its guarantee."""
    config = context.run_config
    strategy = HardThresholdAveraging(FederatedRecipe.from_config(config), int(config["clients"]))
    start = np.zeros(int(config["features"]))
    server_app(strategy, start, done=lambda result: write(result, Path(str(config["output"]))))(grid, context)


def write(result: FederatedResult, path: Path) -> None:
    """Keep the model, and beside it what it guarantees."""
    np.savez(path, weights=result.weights)
    said = {
        "epsilon": result.privacy.epsilon,
        "delta": result.privacy.delta,
        "clients": result.privacy.clients,
    }
    path.with_suffix(".json").write_text(json.dumps(said, indent=2), "utf-8")
