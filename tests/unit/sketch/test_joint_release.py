"""Joint releases inside one process: holders, a coordinator, their ledgers and files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator

import dpsketch as dps
from dpsketch.errors import BudgetError, DpsketchError, FileError, LedgerError, MergeError
from dpsketch.maps.base import LARGE
from dpsketch.privacy.mechanisms import Mechanism
from dpsketch.privacy.noise_shares import Consortium
from dpsketch.sketch.joint_release import joint_release, joint_terms, release_jointly
from dpsketch.sketch.privacy_statement import statement_text
from dpsketch.sketch.release import NoisyShare
from dpsketch.sketch.released import ReleasedSketch
from in_process_exchange import Gone, Room, Seat, together

FORMAT = Draft202012Validator(
    json.loads((Path(__file__).parents[3] / "docs/formats/statement.schema.json").read_text())
)
FIVE = Consortium.of(5)
PURE, APPROXIMATE = dps.Budget(1.0), dps.Budget(1.0, 1e-6)
NAMES = "abcde"
FACTS: dict[str, Any] = {
    "privacy": {"rows": 5000},
    "columns": {
        "age": {"kind": "integer", "lower": 0, "upper": 120},
        "income": {"kind": "number", "lower": 0.0, "upper": 1000.0},
        "sex": {"kind": "category", "values": ["f", "m"]},
    },
}
SCHEMA = dps.Schema.from_dict(FACTS)
SMALL = dps.Recipe([dps.Part(dps.Count(), 0.2), dps.Part(dps.Histogram(bins=8), 0.8)])
GENERAL = dps.Recipe.general(SCHEMA, rows=5000, budget=APPROXIMATE)


def table(seed: int, rows: int = 1000) -> pa.Table:
    random = np.random.default_rng(seed)
    age = random.integers(0, 90, rows)
    return pa.table(
        {"age": age, "income": age * 8.0 + random.normal(50, 30, rows), "sex": random.choice(["f", "m"], rows)}
    )


def sketches(recipe: dps.Recipe, schema: dps.Schema = SCHEMA) -> dict[str, dps.RawSketch]:
    return {name: dps.accumulate(table(seed), schema, recipe) for seed, name in enumerate(NAMES)}


def session(
    raws: Mapping[str, dps.RawSketch],
    recipe: dps.Recipe,
    budget: dps.Budget,
    drops: Mapping[str, int] | None = None,
    changed: Callable[[str], dict[str, Any]] = lambda name: {},
    consortium: Consortium = FIVE,
    schema: dps.Schema = SCHEMA,
) -> tuple[list[Any], dict[str, dps.Ledger]]:
    """What the holders and, last, the coordinator return or raise, and the ledgers."""
    room, ledgers = Room(list(raws), drops), {name: dps.Ledger("sqlite://") for name in raws}

    def holder(name: str) -> ReleasedSketch:
        facts = {"budget": budget} | changed(name)
        return release_jointly(
            raws[name], consortium=consortium, exchange=Seat(room, name), ledger=ledgers[name], dataset="d", **facts
        )

    members: list[Callable[[], Any]] = [partial(holder, name) for name in raws]
    members.append(lambda: joint_release(schema, recipe, budget, consortium, Seat(room)))
    return together(members), ledgers


@pytest.mark.parametrize("budget", [PURE, APPROXIMATE, dps.Budget(rho=0.5)], ids=["pure", "approximate", "rho"])
def test_everybody_gets_the_sum_and_spends_in_its_own_ledger(budget: dps.Budget) -> None:
    raws = sketches(SMALL)
    released, ledgers = session(raws, SMALL, budget)
    together_raw = raws["a"].merge(raws["b"]).merge(raws["c"]).merge(raws["d"]).merge(raws["e"])
    for each in released:
        assert isinstance(each, ReleasedSketch)
        assert each.lineage == together_raw.lineage
        for mine, first, exact in zip(each.parts, released[0].parts, together_raw.parts, strict=True):
            assert (mine.sums == first.sums).all()
            noise, deviation = mine.sums - exact.sums, mine.noise_variance**0.5
            assert np.abs(noise).max() < 12 * deviation
            assert noise.size == 1 or noise.any()
    for name, ledger in ledgers.items():
        (account,) = ledger.accounts()
        assert [spend.committed for spend in account.spends] == [True]
        assert account.spends[0].release.budget == budget
        assert account.spends[0].lineage == raws[name].lineage
    assert released[0].circumstances[0].account is not None
    assert released[-1].circumstances[0].account is None


def test_noise_follows_the_survivors_and_costs_the_honest_ones() -> None:
    """Two stages of a general recipe; one holder leaves before the first sum."""
    raws = sketches(GENERAL)
    released, ledgers = session(raws, GENERAL, APPROXIMATE, drops={"c": 0})
    assert isinstance(released[2], Gone)
    assert any("stands" in note for note in released[2].__notes__)
    assert [len(ledgers["c"].accounts()[0].spends), ledgers["c"].accounts()[0].spends[0].committed] == [1, False]
    sketch = released[-1]
    assert sketch.releases[0].shares.honest == 3
    assert {noise.shares.added for noise in sketch.releases[0].noises if noise.shares} == {4}
    alone = dps.release(raws["a"], APPROXIMATE, dps.Ledger("sqlite://"), "d")
    for part, one in zip(sketch.parts, alone.parts, strict=True):
        if part.noises[0].sensitivity and part.map.size:
            assert 0.9 * 4 / 3 < part.noise_variance / one.noise_variance < 1.06 * 4 / 3
    answer = dps.View(sketch).sql("select avg(age), count(*) from sketch").rows[0]
    assert abs(answer[0].value - 44.5) < 5 * max(answer[0].stderr, 0.5)
    assert abs(answer[1].value - 4000) < 5 * answer[1].stderr


def test_a_holder_that_leaves_between_stages_ends_the_session() -> None:
    assert len(SMALL.bind(SCHEMA).stages) == 1
    assert len(GENERAL.bind(SCHEMA).stages) > 1
    released, ledgers = session(sketches(GENERAL), GENERAL, APPROXIMATE, drops={"e": 1})
    assert isinstance(released[4], Gone)
    for each in [*released[:4], released[5]]:
        assert isinstance(each, DpsketchError)
        assert "of stage 2" in str(each)
    assert all(not ledger.accounts()[0].spends[0].committed for ledger in ledgers.values())


def test_too_few_survivors_release_nothing() -> None:
    released, _ = session(sketches(SMALL), SMALL, PURE, drops={"a": 0, "b": 0})
    assert all(isinstance(each, Gone | DpsketchError) for each in released)


def test_other_terms_are_refused_before_anything_is_spent() -> None:
    raws = sketches(SMALL)
    released, ledgers = session(
        raws, SMALL, PURE, changed=lambda name: {"budget": dps.Budget(2.0)} if name == "b" else {}
    )
    assert all(isinstance(each, DpsketchError) for each in released)
    assert all(ledger.accounts() == () for ledger in ledgers.values())
    raws["b"] = raws["a"]
    released, ledgers = session(raws, SMALL, PURE)
    assert all("same input" in str(each) for each in released)
    assert all(ledger.accounts() == () for ledger in ledgers.values())


def test_a_full_ledger_refuses_before_anybody_is_asked() -> None:
    raw, ledger = sketches(SMALL)["a"], dps.Ledger("sqlite://")
    ledger.grant("d", dps.Budget(0.5))

    class Untouched(Seat):
        def join(self, *_: object) -> frozenset[str]:
            raise AssertionError

    with pytest.raises(BudgetError, match="0\\.5"):
        release_jointly(raw, PURE, FIVE, Untouched(Room([])), ledger, "d")


def test_a_crashed_holder_goes_on_with_its_spend() -> None:
    """Stored totals are given back without a share being read; another dataset's spend is refused."""
    raws = sketches(GENERAL)
    kept: list[str] = []
    room, ledger = Room(["a", "b", "c", "d", "e"]), dps.Ledger("sqlite://")

    class Crashing(Seat):
        def sum(self, stage: int, shares: Any, meaning: bytes) -> Any:
            super().sum(stage, shares, meaning)
            if stage == len(GENERAL.bind(SCHEMA).stages) - 1:
                raise KeyboardInterrupt
            return self.room.totals(stage)

    class Again(Seat):
        def join(self, terms: Any, lineage: frozenset[str]) -> frozenset[str]:
            return frozenset().union(*(ids for _, ids in self.room._joined.values()))

        def sum(self, stage: int, shares: Any, meaning: bytes) -> Any:
            return self.room.totals(stage)

    def first() -> Any:
        return release_jointly(raws["a"], APPROXIMATE, FIVE, Crashing(room, "a"), ledger, "d", reserved=kept.append)

    def other(name: str) -> Any:
        return release_jointly(raws[name], APPROXIMATE, FIVE, Seat(room, name), dps.Ledger("sqlite://"), "d")

    members: list[Callable[[], Any]] = [first, *(partial(other, name) for name in "bcde")]
    members.append(lambda: joint_release(SCHEMA, GENERAL, APPROXIMATE, FIVE, Seat(room)))
    results = together(members)
    assert isinstance(results[0], KeyboardInterrupt)
    assert isinstance(results[5], ReleasedSketch)
    again = release_jointly(raws["a"], APPROXIMATE, FIVE, Again(room, "a"), ledger, "d", spend=kept[0])
    assert all((mine == theirs).all() for mine, theirs in zip(again.sums, results[5].sums, strict=True))
    (account,) = ledger.accounts()
    assert [spend.id for spend in account.spends] == kept
    for wrong, raw in ((kept[0], raws["b"]), ("0" * 32, raws["a"])):
        with pytest.raises(LedgerError, match="no such spend"):
            release_jointly(raw, APPROXIMATE, FIVE, Again(room, "a"), ledger, "d", spend=wrong)


def test_a_share_is_read_once() -> None:
    raw = sketches(SMALL)["a"]
    event = joint_terms(raw.bound, PURE, FIVE).event
    share = NoisyShare(event.noises[1], raw.parts[1].sums)
    assert sum(chunk.size for chunk in share.chunks()) == share.size
    with pytest.raises(RuntimeError, match="second time"):
        share.chunks()
    interrupted = NoisyShare(event.noises[1], raw.parts[1].sums)
    next(interrupted.chunks())
    with pytest.raises(RuntimeError, match="second time"):
        interrupted.chunks()
    assert not any(str(number) in repr(share) for number in raw.parts[1].sums if number > 99)


def test_groups_are_checked_before_anything_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A choice that would count a record twice, as a wrong or hostile rule could make it, stops the session."""
    from dpsketch.maps.tables.adaptive_marginals import BoundAdaptiveMarginals
    from dpsketch.maps.tables.adaptive_pairs import BoundAdaptivePairs

    raws = sketches(GENERAL)
    read: list[int] = []
    chunks = NoisyShare.chunks
    monkeypatch.setattr(NoisyShare, "chunks", lambda self: read.append(self.size) or chunks(self))
    changed = next(
        each for each in GENERAL.bind(SCHEMA).maps if isinstance(each, BoundAdaptivePairs | BoundAdaptiveMarginals)
    )
    stage = next(
        number
        for number, stage in enumerate(GENERAL.bind(SCHEMA).stages)
        if [isinstance(GENERAL.bind(SCHEMA).maps[index], type(changed)) for index in stage].count(True)
    )
    whole = type(changed).settle
    monkeypatch.setattr(
        type(changed), "settle", lambda self, earlier, variance: _doubled(whole(self, earlier, variance))
    )
    released, _ = session(raws, GENERAL, APPROXIMATE)
    assert all(isinstance(each, RuntimeError) for each in released), released
    first = {index for number, stage_ in enumerate(GENERAL.bind(SCHEMA).stages) if number < stage for index in stage_}
    assert len(read) == 5 * len(first)


def _doubled(settled: Any) -> Any:
    other = settled._with()
    other.record_sensitivity = lambda relation: replace(
        settled.record_sensitivity(relation), l1=10**6, l2_squared=10**6
    )
    description = settled.description

    class Twice:
        def bind(self, schema: dps.Schema) -> Any:
            return other

        def __getattr__(self, name: str) -> Any:
            return getattr(description, name)

    other.description = Twice()
    return other


def test_files_round_trip_and_lies_are_refused(tmp_path: Path) -> None:
    released, _ = session(sketches(SMALL), SMALL, APPROXIMATE)
    sketch = released[0]
    sketch.save(tmp_path / "joint.sketch")
    again = ReleasedSketch.load(tmp_path / "joint.sketch")
    assert (again.releases, again.circumstances) == (sketch.releases, sketch.circumstances)
    assert again.statement == sketch.statement
    for lie in (
        replace(sketch, circumstances=(replace(sketch.circumstances[0], consortium=None),)),
        replace(sketch, circumstances=(replace(sketch.circumstances[0], consortium=Consortium.of(7)),)),
        replace(sketch, circumstances=()),
    ):
        lie.save(tmp_path / "lie.sketch", force=True)
        with pytest.raises(FileError, match="not valid"):
            ReleasedSketch.load(tmp_path / "lie.sketch")
    (event,) = sketch.releases
    narrow = [replace(noise, scale=noise.scale / 2) for noise in event.noises]
    replace(sketch, releases=(replace(event, noises=tuple(narrow)),)).save(tmp_path / "lie.sketch", force=True)
    with pytest.raises(FileError, match="not valid"):
        ReleasedSketch.load(tmp_path / "lie.sketch")


def test_joint_releases_merge_with_others() -> None:
    released, _ = session(sketches(SMALL), SMALL, PURE)
    alone = dps.release(dps.accumulate(table(9), SCHEMA, SMALL), PURE, dps.Ledger("sqlite://"), "x")
    merged = released[-1].merge(alone)
    for mine, one, other in zip(merged.parts, released[-1].parts, alone.parts, strict=True):
        assert mine.noise_variance == pytest.approx(one.noise_variance + other.noise_variance)


def test_what_no_joint_release_can_be_is_refused() -> None:
    bound = SMALL.bind(SCHEMA)
    with pytest.raises(BudgetError, match="protects no holder"):
        joint_terms(bound, dps.Budget(float("inf")), FIVE)
    sampled = dps.Recipe(SMALL.parts, sampling=dps.RowSampling(count=10)).bind(SCHEMA)
    with pytest.raises(MergeError, match="fixed count"):
        joint_terms(sampled, PURE, FIVE)
    units = dps.Schema.from_dict(FACTS | {"privacy": {"rows": 5000, "unit": "id", "max_rows_per_unit": 3}})
    with pytest.raises(MergeError, match="two holders"):
        joint_terms(SMALL.bind(units), PURE, FIVE)
    assert joint_terms(SMALL.bind(units), PURE, FIVE, disjoint_units=True).disjoint_units


def test_terms_are_canonical_and_hold_what_must_agree() -> None:
    terms = joint_terms(SMALL.bind(SCHEMA), PURE, FIVE)
    same = joint_terms(SMALL.bind(dps.Schema.from_dict(FACTS)), PURE, FIVE)
    assert terms.to_bytes() == same.to_bytes()
    others = [
        joint_terms(SMALL.bind(SCHEMA), dps.Budget(1.5), FIVE),
        joint_terms(SMALL.bind(SCHEMA), PURE, Consortium.of(7)),
        joint_terms(SMALL.bind(SCHEMA), APPROXIMATE, FIVE, "laplace"),
        joint_terms(dps.Recipe(SMALL.parts[:1]).bind(SCHEMA), PURE, FIVE),
        joint_terms(SMALL.bind(replace(SCHEMA, rows=6000)), PURE, FIVE),
        replace(terms, disjoint_units=True),
        replace(terms, library="another"),
    ]
    assert len({each.digest for each in (terms, *others)}) == 1 + len(others)


def test_large_counters_keep_four_bytes_and_wrap_like_the_sums() -> None:
    """Modulo 2^32: a counter near the edge wraps, and the share with it."""
    sums = np.full(1000, 2**31 - 1, np.int32)
    noise = joint_terms(SMALL.bind(SCHEMA), PURE, FIVE).event.noises[1]
    noisy = np.concatenate(list(NoisyShare(noise, sums).chunks()))
    assert noisy.dtype == np.int32
    assert (noisy < 0).any()
    schema = replace(SCHEMA, rows=10**6)
    bound = dps.Recipe(
        [dps.Part(dps.Race(rows=1, width=LARGE) if hasattr(dps, "Race") else dps.Grid(rows=1, width=LARGE), 1.0)]
    ).bind(schema)
    assert joint_terms(bound, PURE, FIVE).types == (np.dtype(np.int32),)


def test_bodies_are_not_shared_but_laplace_noise_is() -> None:
    """Disc noise is no sum of shares."""
    recipe = dps.Recipe([dps.Part(dps.Fourier(size=64), 1.0)])
    bound = recipe.bind(SCHEMA)
    alone, joint = bound.calibrated(PURE), joint_terms(bound, PURE, FIVE).event
    assert alone.noises[0].mechanism is Mechanism.DISC
    assert joint.noises[0].mechanism is Mechanism.POLYA
    assert joint.noises[0].epsilon == Fraction(1)


def test_the_statement_says_whom_to_trust_and_what_it_costs() -> None:
    recipe = dps.Recipe([dps.Part(dps.Count(), 0.2), dps.Part(dps.Fourier(size=64), 0.8)])
    released, _ = session(sketches(recipe), recipe, PURE, drops={"e": 0})
    facts = released[-1].statement
    FORMAT.validate(facts)
    assert facts["trust"]["model"] == "secure sum"
    assert facts["consortia"] == [FIVE.to_dict() | {"honest": 3, "added": 4}]
    text = statement_text(facts)
    for wanted in (
        "4 of 5 holders",
        "of 3 of them",
        "lies about its data",
        "break the keys",
        "never the sums of another",
    ):
        assert wanted in text
    counted, waves = (part["noise"][0]["times"] for part in facts["parts"])
    assert counted == pytest.approx((4 / 3) ** 0.5, abs=1e-6)
    assert 1.9 * counted < waves < 2 * counted  # disc noise has about a quarter of the variance of Laplace noise
    assert f"{waves:.3g} times one curator's noise" in text
    gaussian, _ = session(sketches(SMALL), SMALL, APPROXIMATE, changed=lambda name: {"mechanism": "gaussian"})
    assert all(isinstance(each, DpsketchError) for each in gaussian)  # the coordinator's is auto
    merged = released[-1].merge(
        dps.release(dps.accumulate(table(8), SCHEMA, recipe), PURE, dps.Ledger("sqlite://"), "d")
    )
    FORMAT.validate(merged.statement)
    assert merged.statement["trust"]["model"] == "several"


def test_the_statement_shows_how_close_gaussian_shares_are() -> None:
    released, _ = session(sketches(GENERAL), GENERAL, APPROXIMATE)
    (group,) = released[-1].statement["consortia"]
    assert 0 < group["closeness"] < 1e-9
    assert "a factor e^" in statement_text(released[-1].statement)
    FORMAT.validate(released[-1].statement)
