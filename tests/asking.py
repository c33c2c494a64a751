"""Ask an executor one question as a curator does, without a plan."""

from sordino.kernel import Question
from sordino.kernel.curator import answer


def asked(executor, release, params, sensitivity, position, noise):
    """Return the noisy answer of release number ``position``."""
    return answer(executor, Question(release, params, sensitivity, position, executor.population), noise)


def folded(kind, settings):
    """Return settings of an estimator with the options of its solver in ``solver_options``."""
    known = kind._get_param_names()
    own = {name: value for name, value in settings.items() if name not in known}
    rest = {name: value for name, value in settings.items() if name in known}
    return {**rest, "solver_options": {**(rest.get("solver_options") or {}), **own}} if own else rest
