"""What every test shares: Hypothesis profiles and user directories that are not the user's."""

import os

import pytest
from hypothesis import HealthCheck, settings

_COMMON = {"deadline": None, "database": None, "suppress_health_check": [HealthCheck.too_slow]}

# Derandomised: a red test is red again, and a green one says the same thing everywhere.
settings.register_profile("default", derandomize=True, max_examples=100, **_COMMON)
settings.register_profile("long", derandomize=True, max_examples=2000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(autouse=True, scope="session")
def _own_user_directories(tmp_path_factory):
    """Keep the tests away from the caches, ledgers and settings of the user who runs them."""
    home = tmp_path_factory.mktemp("user")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
            patch.setenv(name, str(home / name.lower()))
        yield
