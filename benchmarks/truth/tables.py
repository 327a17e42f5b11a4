"""The tables of the truth study: those with bounds that common sense would declare, and those with a schema file.

A random fifth of the rows is held out for models. Numbers are clamped as the schema says, so that truths are those of
the rows that were released.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

import dpsketch as dps
from benchmarks.data import DATA
from dpsketch.schema.columns import Boolean, Category, Datetime, Integer

HELD_OUT_SEED = 77
SAMPLE_SEED = 1
HUBS = [
    "ATL",
    "ORD",
    "DFW",
    "LAX",
    "PHX",
    "STL",
    "DTW",
    "MSP",
    "DEN",
    "LAS",
    "CLT",
    "BOS",
    "IAH",
    "SFO",
    "EWR",
    "LGA",
    "PHL",
    "SEA",
    "PIT",
    "MCO",
    "BWI",
    "CVG",
    "SLC",
    "SAN",
    "DCA",
    "CLE",
    "MIA",
    "TPA",
    "JFK",
    "OAK",
    "PDX",
    "MEM",
    "MCI",
    "SJC",
    "BNA",
    "HOU",
    "FLL",
    "IAD",
    "SMF",
    "MDW",
    "SNA",
    "AUS",
    "MSY",
    "IND",
    "RDU",
    "CMH",
    "SAT",
    "ONT",
    "MKE",
    "BUR",
]
AGENCIES = [
    "POLICE DEPARTMENT",
    "DISTRICT ATTORNEY-MANHATTAN",
    "DISTRICT ATTORNEY KINGS COUNTY",
    "BRONX DISTRICT ATTORNEY",
    "DISTRICT ATTORNEY QNS COUNTY",
    "DISTRICT ATTORNEY RICHMOND COU",
]
SERVICES = [
    "ecr_i",
    "private",
    "http",
    "smtp",
    "other",
    "domain_u",
    "ftp_data",
    "eco_i",
    "ftp",
    "finger",
    "urp_i",
    "telnet",
    "ntp_u",
    "auth",
    "pop_3",
    "ssh",
    "time",
]
STATES = [
    "AL",
    "AK",
    "AZ",
    "AR",
    "CA",
    "CO",
    "CT",
    "DE",
    "DC",
    "FL",
    "GA",
    "HI",
    "ID",
    "IL",
    "IN",
    "IA",
    "KS",
    "KY",
    "LA",
    "ME",
    "MD",
    "MA",
    "MI",
    "MN",
    "MS",
    "MO",
    "MT",
    "NE",
    "NV",
    "NH",
    "NJ",
    "NM",
    "NY",
    "NC",
    "ND",
    "OH",
    "OK",
    "OR",
    "PA",
    "RI",
    "SC",
    "SD",
    "TN",
    "TX",
    "UT",
    "VT",
    "VA",
    "WA",
    "WV",
    "WI",
    "WY",
]
FLAGS = ["SF", "S0", "REJ", "RSTR", "RSTO", "SH", "S1", "RSTOS0", "OTH", "S3", "S2"]
TARGETS = {
    "flights": "distance_miles",
    "fare": "fare_amount",
    "payroll": "regular_gross_paid",
    "kdd": "attack",
    "adult": "income",
    "occupancy": "occupancy",
    "htru2": "label",
    "california_housing": "median_house_value",
    "cod_rna": "label",
    "lifesci": "pc1",
    "trips": "fare_amount",
    "quotes": "cost",
    "cabs": "occupied",
}
# Constants of error bars are chosen on the first tables alone; the others judge them. Flights, fare, payroll and htru2
# had a say in two constants (decisions 27 and 28).
CHOSEN_ON = ("adult", "occupancy", "california_housing", "covtype", "kdd", "flights", "fare", "payroll", "htru2")
# First asked when the rules of errors of decisions 24 to 32 were settled: results/truth/unseen.txt is that print.
UNSEEN = ("trips", "quotes", "cabs")
JUDGED_ON = ("flight_days", "fare_days", "lifesci", "cod_rna", "airfoil", "naval", "sf_salaries", "skin", *UNSEEN)
# Tables that are asked at some budgets only, and that shares of all tables leave out: nomao has 119 columns.
APART = {"nomao": ((1.0, 1e-6),)}
TABLES = (*CHOSEN_ON, *JUDGED_ON, *APART)
# Tables that are asked questions of some kinds only.
ASKED = {"flight_days": ("single day",), "fare_days": ("single day",), "nomao": ("1-way", "2-way", "3-way")}

WIDE = {f"wide{columns}": columns for columns in (10, 30, 60, 100)}  # simulated, by their numbers of columns

Facts = dict[str, dict[str, Any]]


def _number(lower: float, upper: float, transform: str | None = None) -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": "number", "lower": lower, "upper": upper}
    return facts | ({"transform": transform} if transform else {})


def _integer(lower: int, upper: int) -> dict[str, Any]:
    return {"kind": "integer", "lower": lower, "upper": upper}


def _category(values: Sequence[str | int]) -> dict[str, Any]:
    return {"kind": "category", "values": list(values)}


def _dates(lower: str, upper: str) -> dict[str, Any]:
    return {"kind": "datetime", "lower": lower, "upper": upper}


_BOOLEAN = {"kind": "boolean"}


def _flights() -> tuple[Any, Facts]:
    frame = pd.read_parquet(DATA / "flights_3m.parquet").sample(300_000, random_state=SAMPLE_SEED)
    frame["hour"] = frame.date.dt.hour
    frame["weekday"] = frame.date.dt.day_name().str[:3]
    frame["month"] = frame.date.dt.month.clip(1, 6).astype(int)
    return frame, {
        "hour": _integer(0, 23),
        "weekday": _category(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]),
        "month": _integer(1, 6),
        "delay_min": _number(-120, 1440, "asinh"),
        "distance_miles": _number(0, 5000),
        "origin": _category(HUBS),
        "destination": _category(HUBS),
    }


def _flight_days() -> tuple[Any, Facts]:
    frame = pd.read_parquet(DATA / "flights_3m.parquet").sample(300_000, random_state=SAMPLE_SEED)
    return frame, {
        "date": _dates("2001-01-01", "2001-07-01"),
        "delay_min": _integer(-60, 600),
        "distance_miles": _number(0, 5000),
        "origin": _category(HUBS),
        "destination": _category(HUBS),
    }


def _fare_days() -> tuple[Any, Facts]:
    return pd.read_parquet(DATA / "nyc_taxi_fare_50k.parquet"), {
        "pickup_datetime": _dates("2009-01-01", "2015-07-01"),
        "fare_amount": _number(0, 200),
        "passenger_count": _integer(0, 6),
    }


def _fare() -> tuple[Any, Facts]:
    frame = pd.read_parquet(DATA / "nyc_taxi_fare_50k.parquet")
    frame["hour"], frame["year"] = frame.pickup_datetime.dt.hour, frame.pickup_datetime.dt.year
    return frame, {
        "fare_amount": _number(0, 200),
        "hour": _integer(0, 23),
        "year": _integer(2009, 2015),
        "pickup_longitude": _number(-74.3, -73.6),
        "pickup_latitude": _number(40.5, 41),
        "dropoff_longitude": _number(-74.3, -73.6),
        "dropoff_latitude": _number(40.5, 41),
        "passenger_count": _integer(0, 6),
    }


def _payroll() -> tuple[Any, Facts]:
    return pd.read_parquet(DATA / "nyc_payroll_fy2016_excerpt.parquet"), {
        "agency": _category(AGENCIES),
        "borough": _category(["MANHATTAN", "BROOKLYN", "QUEENS", "BRONX", "RICHMOND", "OTHER"]),
        "leave_status": _category(["ACTIVE", "CEASED", "ON LEAVE", "ON SEPARATION LEAVE", "SEASONAL"]),
        "pay_basis": _category(["per Annum", "per Hour", "per Day", "Prorated Annual"]),
        "base_salary": _number(0, 300_000),
        "regular_hours": _number(0, 2200),
        "regular_gross_paid": _number(0, 300_000),
        "ot_hours": _number(0, 2000, "asinh"),
        "total_ot_paid": _number(0, 200_000, "asinh"),
        "total_other_pay": _number(0, 100_000, "asinh"),
    }


def _kdd() -> tuple[Any, Facts]:
    frame = pd.read_parquet(DATA / "kddcup99_10pct.parquet").sample(300_000, random_state=SAMPLE_SEED)
    frame["attack"], frame["logged_in"] = frame.label != "normal", frame.logged_in.astype(bool)
    return frame, {
        "duration": _number(0, 60_000, "asinh"),
        "protocol_type": _category(["icmp", "tcp", "udp"]),
        "service": _category(SERVICES),
        "flag": _category(FLAGS),
        "src_bytes": _number(0, 1e9, "asinh"),
        "dst_bytes": _number(0, 1e9, "asinh"),
        "logged_in": _BOOLEAN,
        "count": _integer(0, 511),
        "serror_rate": _number(0, 1),
        "same_srv_rate": _number(0, 1),
        "attack": _BOOLEAN,
    }


def _trips() -> tuple[Any, Facts]:
    frame = pd.read_parquet(DATA / "nyc_yellow_taxi_360k.parquet")
    frame["hour"], frame["minutes"] = frame.pickup_datetime.dt.hour, _minutes(frame)
    frame["vendor_id"] = frame.vendor_id.map({1: "Creative", 2: "VeriFone"})
    frame["payment_type"] = frame.payment_type.map({1: "card", 2: "cash", 3: "free", 4: "dispute"})
    return frame, {
        "hour": _integer(0, 23),
        "vendor_id": _category(["Creative", "VeriFone"]),
        "passenger_count": _integer(0, 9),
        "payment_type": _category(["card", "cash", "free", "dispute"]),
        "trip_distance": _number(0, 100),
        "minutes": _number(0, 240),
        "fare_amount": _number(0, 500),
        "extra": _number(0, 10),
        "tip_amount": _number(0, 200),
        "tolls_amount": _number(0, 100),
        "total_amount": _number(0, 1000),
        "congestion_surcharge": _number(0, 5),
    }


def _minutes(frame: Any) -> Any:
    return (frame.dropoff_datetime - frame.pickup_datetime).dt.total_seconds() / 60


def _quotes() -> tuple[Any, Facts]:
    frame = pd.read_parquet(DATA / "allstate_quotes_test.parquet")
    for name in ("risk_factor", "c_previous"):
        frame[name] = _whole(frame[name])
    for name in ("homeowner", "married_couple"):
        frame[name] = frame[name].astype(bool)
    return frame, {
        "state": _category(STATES),
        "group_size": _integer(1, 4),
        "homeowner": _BOOLEAN,
        "car_age": _integer(0, 100),
        "car_value": _category(list("abcdefghi")),
        "risk_factor": _category([1, 2, 3, 4]),
        "age_oldest": _integer(16, 100),
        "age_youngest": _integer(16, 100),
        "married_couple": _BOOLEAN,
        "c_previous": _category([1, 2, 3, 4]),
        "duration_previous": _integer(0, 20),
        "opt_g": _category([1, 2, 3, 4]),
        "cost": _integer(0, 2000),
    }


def _whole(cells: Any) -> Any:
    """Labels that a missing cell turned into decimals, as whole numbers again."""
    return cells.astype("Int64")


def _cabs() -> tuple[Any, Facts]:
    frame = pd.read_parquet(DATA / "sf_cabs_2p8m.parquet").sample(300_000, random_state=SAMPLE_SEED)
    frame["hour"], frame["occupied"] = pd.to_datetime(frame.time, unit="s").dt.hour, frame.occupied.astype(bool)
    frame["latitude"], frame["longitude"] = frame.lat_e5 / 1e5, frame.lon_e5 / 1e5
    return frame, {
        "cab": _integer(0, 999),
        "latitude": _number(37, 38.2),
        "longitude": _number(-123, -121.5),
        "occupied": _BOOLEAN,
        "hour": _integer(0, 23),
    }


COMMON_SENSE: dict[str, Callable[[], tuple[Any, Facts]]] = {
    "flights": _flights,
    "flight_days": _flight_days,
    "fare": _fare,
    "fare_days": _fare_days,
    "payroll": _payroll,
    "kdd": _kdd,
    "trips": _trips,
    "quotes": _quotes,
    "cabs": _cabs,
}


def simulated(columns: int, rows: int = 100_000) -> tuple[Any, Facts]:
    """Numbers, skewed numbers, six labels and booleans in turn, each following two of four hidden causes."""
    rng = np.random.default_rng(columns)
    hidden = rng.normal(size=(rows, 4))
    cells: dict[str, Any] = {}
    facts: Facts = {}
    for column in range(columns):
        causes, name = np.zeros(4), f"c{column}"
        two = rng.choice(4, 2, replace=False)
        causes[two] = rng.normal(size=2)
        score = hidden @ causes
        score = 0.8 * score / score.std() + 0.6 * rng.normal(size=rows)
        if column % 4 == 0:
            cells[name], facts[name] = score.clip(-5, 5), _number(-5, 5)
        elif column % 4 == 1:
            cells[name], facts[name] = np.exp(score + 2).clip(0, 1000), _number(0, 1000, "asinh")
        elif column % 4 == 2:
            label = np.clip(np.floor(1.2 * score + 3), 0, 5).astype(int)
            cells[name], facts[name] = np.array(list("abcdef"), object)[label], _category(list("abcdef"))
        else:
            cells[name], facts[name] = score > 0.4, _BOOLEAN
    return pd.DataFrame(cells), facts


def _with_schema(name: str) -> tuple[Any, Facts]:
    facts = tomllib.loads((DATA / "schemas" / f"{name}.toml").read_text())["columns"]
    if name == "lifesci":
        del facts["label"]
    return pd.read_parquet(DATA / f"{name}.parquet"), facts


@dataclass(frozen=True, eq=False)
class Table:
    """`train` are the rows that are released and `test` those that models are scored on: numbers clamped, labels that
    are not listed as "other".
    """

    name: str
    schema: dps.Schema
    train: Any
    test: Any

    @cached_property
    def arrow(self) -> pa.Table:
        return pa.Table.from_pandas(self.train, preserve_index=False)

    @property
    def target(self) -> str | None:
        return TARGETS.get(self.name)

    def named(self, numeric: bool) -> list[str]:
        """Columns that are numbers, or those that have classes."""
        return [column.name for column in self.schema.columns if column.numeric is numeric]


def rounded(rows: int) -> int:
    """What a curator would declare: two digits."""
    return int(round(rows, 1 - int(np.floor(np.log10(rows)))))


def _frame(name: str) -> tuple[Any, Facts]:
    if name in WIDE:
        return simulated(WIDE[name])
    return COMMON_SENSE[name]() if name in COMMON_SENSE else _with_schema(name)


@lru_cache(2)
def load(name: str, rows: int | None = None, seed: int = 0) -> Table:
    """A table, or `rows` of its rows at random, all where it has fewer."""
    frame, facts = _frame(name)
    frame = frame[list(facts)].reset_index(drop=True)
    order, held_out = np.random.default_rng(HELD_OUT_SEED).permutation(len(frame)), len(frame) // 5
    chosen = order[held_out:]
    if rows is not None:
        chosen = np.random.default_rng([HELD_OUT_SEED, seed]).choice(chosen, min(rows, len(chosen)), replace=False)
    schema = dps.Schema.from_dict({"privacy": {"rows": rounded(len(chosen))}, "columns": facts})
    for column in schema.columns:
        frame[column.name] = _as_released(column, frame[column.name])
    parts = [frame.iloc[each].reset_index(drop=True) for each in (chosen, order[:held_out])]
    return Table(name, schema, *parts)


def _as_released(column: Any, cells: Any) -> Any:
    if isinstance(column, Category):
        listed = {str(value): value for value in column.values}
        known = [None if pd.isna(cell) else listed.get(str(cell), "other") for cell in cells]
        return pd.Series(np.array([*known, None], object)[:-1])
    if isinstance(column, Boolean):
        return pd.Series(cells.to_numpy(bool))
    low, high = column.lower, column.upper
    if isinstance(column, Datetime):
        return cells.clip(*(pd.Timestamp(end).tz_localize(None) for end in (low, high)))
    numbers = cells.astype(float).clip(low, high)
    return numbers.round() if isinstance(column, Integer) else numbers
