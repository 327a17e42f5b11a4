"""Old ledgers open as new ones, and new ones are made as the migrations would make them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

import dpsketch as dps
from dpsketch.errors import BudgetError, LedgerError
from dpsketch.ledger import sql_tables
from dpsketch.ledger import upgrade as ledger_upgrade
from dpsketch.ledger.ledger import Ledger
from dpsketch.ledger.sql_tables import VERSION, tables
from dpsketch.privacy.accounting import Partition
from dpsketch.privacy.events import Mechanism, Noise, Release
from dpsketch.privacy.masks import Masks
from postgres_server import Server

# What version 0.1.0 wrote.
OLD = """
CREATE TABLE datasets (name VARCHAR NOT NULL, unit VARCHAR NOT NULL, max_rows_per_unit INTEGER NOT NULL, PRIMARY KEY (name));
CREATE TABLE grants (number INTEGER NOT NULL, dataset VARCHAR NOT NULL, cap VARCHAR NOT NULL, created VARCHAR NOT NULL, PRIMARY KEY (number));
CREATE TABLE spends (number INTEGER NOT NULL, id VARCHAR NOT NULL, dataset VARCHAR NOT NULL, epsilon VARCHAR NOT NULL, event VARCHAR NOT NULL,
  created VARCHAR NOT NULL, PRIMARY KEY (number), UNIQUE (id), FOREIGN KEY(dataset) REFERENCES datasets (name));
CREATE TABLE commits (spend VARCHAR NOT NULL, PRIMARY KEY (spend), FOREIGN KEY(spend) REFERENCES spends (id));
INSERT INTO datasets VALUES ('a', 'person', 3), ('b', 'row', 1);
INSERT INTO grants VALUES (1, 'a', '1/2', '2026-01-01'), (2, 'a', '1', '2026-01-02'), (3, 'b', '1/3', '2026-01-03'), (4, 'c', '7', '2026-01-04');
INSERT INTO spends VALUES (1, 'x1', 'a', '1/10', 'discrete Laplace: count (L1 1)', '2026-01-01'), (2, 'x2', 'a', '3/5', 'two', '2026-01-02'),
  (3, 'x3', 'b', '1/3', 'three', '2026-01-03');
INSERT INTO commits VALUES ('x2');
"""  # noqa: E501


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/l.db"
    return str(request.getfixturevalue("postgres").new_database())


def engine(place: str) -> sa.Engine:
    return sa.create_engine(place.replace("postgresql:", "postgresql+psycopg:"), poolclass=sa.pool.NullPool)


def run(place: str, *statements: str) -> None:
    with engine(place).begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def make_old(place: str) -> None:
    run(place, *[statement for statement in OLD.split(";") if statement.strip()])


def test_an_old_ledger_is_carried_over(place: str) -> None:
    make_old(place)
    ledger = Ledger(place, create=False)
    assert ledger.upgraded
    assert not Ledger(place).upgraded
    for _ in range(2):  # opened again, it is the same
        a, b, c = ledger.accounts()
        assert (a.accounted, a.cap.epsilon, a.cap.delta) == (("person", 3, "add-remove"), 1, 0)
        assert a.total.epsilon == Fraction(7, 10)
        assert [(s.id, s.event, s.created, s.committed) for s in a.spends] == [
            ("x1", "discrete Laplace: count (L1 1)", "2026-01-01", False),
            ("x2", "two", "2026-01-02", True),
        ]
        assert a.spends[0].release == Release(dps.Budget(0.1), ())
        assert a.total.rho == Fraction(1, 200) + Fraction(36, 200)
        assert b.total.epsilon is not None
        assert 0 <= b.total.epsilon - Fraction(1, 3) < Fraction(1, 10**15), "no third is a decimal: rounded up"
        assert (c.accounted, c.cap.epsilon, c.spends) == (None, 7, ())
        ledger = Ledger(place)
    ledger.commit(ledger.reserve("a", ("person", 3, "add-remove"), Release(dps.Budget(0.3), ()), frozenset("i")))
    ledger.grant("a", dps.Budget(1.0))
    with pytest.raises(BudgetError, match="has 0 left of 1"):
        ledger.check("a", ("person", 3, "add-remove"), Release(dps.Budget(0.1), ()))


@pytest.mark.parametrize("way", ["made", "migrated", "carried over"])
def test_tables_made_at_once_equal_the_migrations(place: str, way: str) -> None:
    if way == "made":
        Ledger(place)
    elif way == "migrated":
        with engine(place).begin() as connection:
            ledger_upgrade.upgrade(connection, None)
    else:
        make_old(place)
        Ledger(place)
    with engine(place).connect() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, tables) == []
        assert context.get_current_heads() == (VERSION,)


def test_the_comparison_would_see_a_difference(place: str) -> None:
    with engine(place).begin() as connection:
        ledger_upgrade.upgrade(connection, None, "0001")
        assert compare_metadata(MigrationContext.configure(connection), tables)


def test_the_first_migration_makes_what_the_first_version_made(place: str, tmp_path: Path) -> None:
    old = f"sqlite:///{tmp_path}/old.db"
    make_old(old)
    facts = []
    for where in (old, place):
        with engine(where).begin() as connection:
            if where == place:
                ledger_upgrade.upgrade(connection, None, "0001")
            there = sa.inspect(connection)
            facts.append(
                {
                    name: [(column["name"], column["nullable"]) for column in there.get_columns(name)]
                    for name in ("datasets", "grants", "spends", "commits")
                }
            )
    assert facts[0] == facts[1]


def test_a_ledger_of_a_newer_version_is_refused(place: str) -> None:
    Ledger(place)
    run(place, "update alembic_version set version_num = '9999'")
    with pytest.raises(LedgerError, match="written by a newer dpsketch\nHint: pip install --upgrade dpsketch"):
        Ledger(place)


@pytest.mark.parametrize(
    "statement",
    [
        "insert into alembic_version values ('0001')",
        "delete from alembic_version",
        "update alembic_version set version_num = '0001'",
    ],
)
def test_wrong_versions_are_damage(place: str, statement: str) -> None:
    Ledger(place).declare("a", ("row", 1, "add-remove"), "p", [dps.Budget(0.1)], 1e-6)
    run(place, statement)
    with pytest.raises(LedgerError, match="the ledger is damaged\nHint: restore a backup, and lower the caps"):
        Ledger(place)


def test_a_missing_table_is_damage(place: str) -> None:
    ledger = Ledger(place)
    ledger.grant("a", dps.Budget(1.0))
    run(place, "drop table plans")
    for call in (ledger.accounts, lambda: Ledger(place).accounts()):
        with pytest.raises(LedgerError, match="the ledger is damaged"):
            call()


def test_another_programs_database_is_left_alone(place: str) -> None:
    run(place, "create table alembic_version (version_num varchar(32))")
    with pytest.raises(LedgerError, match="belongs to another program\nHint: give the ledger a database of its own"):
        Ledger(place)


def test_many_open_an_old_ledger_at_once(place: str) -> None:
    make_old(place)
    code = f"from dpsketch.ledger.ledger import Ledger; print(len(Ledger({place!r}).accounts()[0].spends))"
    with ThreadPoolExecutor(4) as pool:
        done = list(
            pool.map(
                lambda _: subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False),
                range(4),
            )
        )
    assert [(one.stdout.strip(), one.stderr) for one in done] == [("2", "")] * 4


def test_a_migration_that_fails_changes_nothing(place: str) -> None:
    make_old(place)
    run(place, "update spends set epsilon = 'nonsense' where id = 'x3'")
    with pytest.raises(LedgerError, match="the ledger is damaged"):
        Ledger(place)
    with engine(place).connect() as connection:
        assert connection.exec_driver_sql("select count(*) from spends").scalar() == 3
        assert not sa.inspect(connection).has_table("plans")
        assert not sa.inspect(connection).has_table("alembic_version")


def test_the_first_version_fails_on_a_new_ledger(place: str) -> None:
    """It must not start an empty ledger beside it."""
    Ledger(place).grant("a", dps.Budget(1.0))
    with pytest.raises(sa.exc.DBAPIError):
        run(place, "select cap from grants where dataset = 'a'")


def test_a_client_may_only_add_rows(postgres: Server) -> None:
    """What docs/ledger.md says about roles."""
    place = postgres.new_database()
    Ledger(place).grant("a", dps.Budget(1.0))
    schema = place.rsplit("%3D", 1)[1]
    run(
        place,
        f"create role client_{schema} login",
        f"grant usage on schema {schema} to client_{schema}",
        f"grant select, insert on all tables in schema {schema} to client_{schema}",
    )
    client = place.replace("owner@", f"client_{schema}@")
    ledger = Ledger(client)
    ledger.commit(ledger.reserve("a", ("row", 1, "add-remove"), Release(dps.Budget(0.5), ()), frozenset("i")))
    assert ledger.accounts()[0].left.epsilon == Fraction(1, 2)
    for statement in ("delete from commits", "update grants set epsilon = '9'"):
        with pytest.raises(sa.exc.ProgrammingError, match="permission denied"):
            run(client, statement)


def test_alembic_is_not_imported_for_a_ledger_that_is_up_to_date(tmp_path: Path) -> None:
    code = (
        "import sys; from dpsketch.ledger.ledger import Ledger; Ledger('l.db'); Ledger('l.db');"
        "print([name for name in ('alembic', 'dp_accounting', 'psycopg') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# What the version before entries wrote: two parts of a table, which it counted once, a sample, a plan and a commit.
BEFORE_ENTRIES = """
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, PRIMARY KEY (version_num));
INSERT INTO alembic_version VALUES ('0002');
CREATE TABLE datasets (name VARCHAR NOT NULL, unit VARCHAR NOT NULL, max_rows_per_unit INTEGER NOT NULL, relation VARCHAR NOT NULL, PRIMARY KEY (name));
CREATE TABLE grants (number INTEGER NOT NULL, dataset VARCHAR NOT NULL, epsilon VARCHAR, delta VARCHAR NOT NULL, rho VARCHAR, created VARCHAR NOT NULL, PRIMARY KEY (number));
CREATE TABLE plans (number INTEGER NOT NULL, dataset VARCHAR NOT NULL, name VARCHAR NOT NULL, budgets VARCHAR NOT NULL, epsilon VARCHAR NOT NULL,
  delta VARCHAR NOT NULL, created VARCHAR NOT NULL, PRIMARY KEY (number), UNIQUE (dataset, name), FOREIGN KEY(dataset) REFERENCES datasets (name));
CREATE TABLE spends (number INTEGER NOT NULL, id VARCHAR NOT NULL, dataset VARCHAR NOT NULL, release VARCHAR NOT NULL, lineage VARCHAR NOT NULL,
  partition_column VARCHAR, partition_value VARCHAR, plan VARCHAR, event VARCHAR, created VARCHAR NOT NULL,
  PRIMARY KEY (number), UNIQUE (id), FOREIGN KEY(dataset) REFERENCES datasets (name));
CREATE TABLE commits (spend VARCHAR NOT NULL, PRIMARY KEY (spend), FOREIGN KEY(spend) REFERENCES spends (id));
INSERT INTO datasets VALUES ('a', 'row', 1, 'add-remove');
INSERT INTO grants VALUES (1, 'a', '9', '1/1000', NULL, '2026-01-01'), (2, 'a', '3', '1/1000', NULL, '2026-01-02');
INSERT INTO plans VALUES (1, 'a', 'p', '[{"epsilon": 0.5, "times": 2}]', '1', '0', '2026-01-01');
INSERT INTO spends VALUES
  (1, 'x1', 'a', '{"budget": {"epsilon": 0.5}, "noises": []}', '["i"]', 'c#1', 'north', NULL, NULL, '2026-01-01'),
  (2, 'x2', 'a', '{"budget": {"epsilon": 0.25}, "noises": []}', '["j"]', 'c#1', 'south', NULL, NULL, '2026-01-02'),
  (3, 'x3', 'a', '{"budget": {"epsilon": 0.25}, "rate": "1/10", "noises": []}', '["k"]', NULL, NULL, NULL, NULL, '2026-01-02'),
  (4, 'x4', 'a', '{"budget": {"epsilon": 0.5}, "noises": []}', '["l"]', NULL, NULL, 'p', NULL, '2026-01-03');
INSERT INTO commits VALUES ('x4'), ('x1')
"""  # noqa: E501


def test_a_ledger_from_before_entries_is_sealed_and_its_parts_add_up(place: str) -> None:
    """Nobody asserted that the two parts were read from the whole of one unchanged table."""
    run(place, *BEFORE_ENTRIES.split(";\n"))
    ledger = Ledger(place)
    assert ledger.upgraded
    (account,) = ledger.accounts()
    assert [spend.partition for spend in account.spends[:2]] == [
        Partition("c#1", "north", None),
        Partition("c#1", "south", None),
    ]
    assert [spend.id for spend in account.spends if spend.committed] == ["x1", "x4"]
    assert (account.cap.epsilon, account.total.epsilon) == (3, 2), (
        "0.5 and 0.25 of parts, 0.25 of a sample, 1 of a plan"
    )
    ledger.verify()
    assert not Ledger(place).upgraded
    release = Release(dps.Budget(0.25), (), Fraction(1, 10))
    ledger.reserve("a", ("row", 1, "add-remove"), release, frozenset("k"))
    ledger.reserve("a", ("row", 1, "add-remove"), Release(dps.Budget(0.5), ()), frozenset("l"), plan="p")
    with pytest.raises(BudgetError, match="plan 'p' has no unused release"):
        ledger.reserve("a", ("row", 1, "add-remove"), Release(dps.Budget(0.5), ()), frozenset("l"), plan="p")
    with pytest.raises(LedgerError, match="released as dataset 'a'"):
        ledger.reserve("b", ("row", 1, "add-remove"), Release(dps.Budget(0.5), ()), frozenset("i"))
    assert ledger.verify().number == 10 + 7 + 2, "rows, totals, spends since"


MASKED = Release(dps.Budget(0.5), (Noise(Mechanism.LAPLACE, 8, Fraction(9), Masks(2, Fraction(1, 10))),))


def contents(place: str) -> dict[str, list[tuple[object, ...]]]:
    with engine(place).connect() as connection:
        names = sa.inspect(connection).get_table_names()
        known = [table for table in tables.sorted_tables if table.name in names]
        return {table.name: sorted(map(tuple, connection.execute(sa.select(table)))) for table in known}


def test_a_ledger_with_entries_keeps_them(place: str) -> None:
    """Version 0003 had the same tables: totals are not added twice, and no entry is sealed again."""
    ledger = Ledger(place)
    ledger.grant("a", dps.Budget(3.0, 1e-6))
    ledger.declare("a", ("row", 1, "add-remove"), "p", [dps.Budget(0.1)], 1e-6)
    for identity, release in (("i", MASKED), ("j", Release(dps.Budget(0.25), (), Fraction(1, 10)))):
        ledger.reserve("a", ("row", 1, "add-remove"), release, frozenset([identity]))
    run(place, "drop table reports")
    run(place, "update alembic_version set version_num = '0003'")
    before = contents(place)
    upgraded = Ledger(place)
    assert upgraded.upgraded
    assert contents(place) == before | {"reports": []}
    upgraded.verify()
    assert not Ledger(place).upgraded
    assert upgraded.accounts() == ledger.accounts()
    with pytest.raises(LedgerError, match="can be released only once"):
        upgraded.reserve("a", ("row", 1, "add-remove"), MASKED, frozenset(["i"]))
    upgraded.reserve("a", ("row", 1, "add-remove"), MASKED, frozenset(["k"]))
    upgraded.verify()


def test_an_empty_ledger_with_entries_stays_usable(place: str) -> None:
    first = Ledger(place).verify()
    run(place, "drop table reports")
    run(place, "update alembic_version set version_num = '0003'")
    ledger = Ledger(place)
    assert ledger.verify() == first, "the first checksum names the ledger"
    ledger.grant("a", dps.Budget(1.0))


def test_versions_from_before_masks_refuse_the_ledger(
    place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An installation with the migrations up to 0003 says that a newer one wrote the ledger, not that it is damaged."""
    Ledger(place).reserve("a", ("row", 1, "add-remove"), MASKED, frozenset("i"))
    older = tmp_path / "migrations"
    shutil.copytree(Path(ledger_upgrade.__file__).parent / "migrations", older)
    for later in ("m0004_masks.py", "m0005_labels.py", "m0006_reports.py"):
        (older / "versions" / later).unlink()
    monkeypatch.setattr(ledger_upgrade, "_MIGRATIONS", older)
    monkeypatch.setattr(sql_tables, "VERSION", "0003")
    with pytest.raises(LedgerError, match="written by a newer dpsketch\nHint: pip install --upgrade dpsketch"):
        Ledger(place)
