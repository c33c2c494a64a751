"""What runs at each hospital."""

import numpy as np
from flwr.app import Context

from sordino.parties.flower import FederatedClient, FederatedRecipe, LinearModel, client_app


def make(context: Context) -> FederatedClient:
    """Build the client: budget, data, ledger and folder come from the hospital's own configuration."""
    own = context.node_config
    records = np.load(str(own["data"]))
    return FederatedClient(
        LinearModel(records["X"], records["y"]),
        FederatedRecipe.from_config(context.run_config),
        folder=str(own["folder"]),
        epsilon=float(own["epsilon"]),
        delta=float(own["delta"]),
        ledger=str(own["ledger"]),
        dataset_id=str(own["dataset"]),
    )


app = client_app(make)
