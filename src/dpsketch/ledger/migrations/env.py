"""The script that Alembic runs: the migrations, in the transaction that the ledger has begun."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
