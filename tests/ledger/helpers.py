"""What the ledger's tests share, importable by the processes they start."""

from sordino.kernel.events import Relation, gaussian_event

AR = Relation.ADD_REMOVE
STATED = {"relation": "add-remove", "unit": "record"}


def gaussian(multiplier=20.0, relation=AR):
    return gaussian_event(multiplier, relation)


def reserve(ledger, event=None, certificate=(0.3, 1e-6), dataset_id="survey", **changed):
    """Reserve on the data set of the fixture."""
    event = gaussian() if event is None else event
    return ledger.reserve(dataset_id, event, **{**STATED, "certificate": certificate, **changed})


def reserve_all(address, event, start, results):
    """Reserve until the budget is gone; report how often it went well."""
    from sordino.errors import BudgetExceededError
    from sordino.ledger import Ledger

    ledger, made = Ledger.open(address), 0
    start.wait()
    try:
        while True:
            reserve(ledger, event)
            made += 1
    except BudgetExceededError:
        results.put(made)
    ledger.close()


def release_for_ever(address, event, record):
    """Reserve, "release" by writing the number to a file, settle, until somebody kills us."""
    from sordino.ledger import Ledger

    ledger = Ledger.open(address)
    with open(record, "a", buffering=1) as released:
        while True:
            reservation = reserve(ledger, event)
            released.write(f"{reservation.sequence}\n")
            reservation.settle()


def reserve_and_die(address, event):
    """Leave a reservation behind without settling it."""
    import os

    from sordino.ledger import Ledger

    reserve(Ledger.open(address), event)
    os._exit(1)


def open_and_create(address, start, results):
    """Make the same ledger and data set as everybody else, at the same moment."""
    from sordino.ledger import BudgetPolicy, Ledger

    start.wait()
    ledger = Ledger.open(address)
    ledger.create("survey", BudgetPolicy(1.0, 1e-5), exist_ok=True)
    results.put(reserve(ledger, gaussian(1000.0)).sequence)
    ledger.close()
