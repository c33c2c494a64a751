"""A smaller claim: a PostgreSQL role with a schema of its own gets a second, fresh ledger."""

from tests.ledger.conftest import cluster, postgres_url  # noqa: F401

from sordino.ledger import BudgetPolicy, Ledger


def test_a_role_that_sees_only_its_own_schema_books_on_the_one_ledger(postgres_url):  # noqa: F811
    import psycopg

    with Ledger.open(postgres_url) as ledger:
        ledger.create("survey", BudgetPolicy(1.0, 1e-6))
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("CREATE SCHEMA apart")
        admin.execute(f"ALTER DATABASE {admin.info.dbname} SET search_path = apart")
    with Ledger.open(postgres_url) as ledger:
        assert ledger.datasets() == ["survey"]
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        found = admin.execute("SELECT count(*) FROM pg_class WHERE relname = 'sordino_meta'").fetchone()
    assert found == (1,)
