"""Ask an executor one question as a curator does, without a plan."""

from sordino.kernel import Question
from sordino.kernel.curator import answer


def asked(executor, release, params, sensitivity, position, noise):
    """Return the noisy answer of release number ``position``."""
    return answer(executor, Question(release, params, sensitivity, position, executor.population), noise)
