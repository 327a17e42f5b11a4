"""The state machines of a secure sum: right totals whoever drops out, and every attack refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpsketch.errors import FederationError
from dpsketch.federate.envelope import Envelope
from dpsketch.federate.secure_sum import HolderSum, Secrets
from dpsketch.federate.sum_messages import (
    AGREE,
    JOIN,
    MASKED,
    SHARES,
    UNMASK,
    Join,
    SealedShares,
    VectorDigest,
    collection,
    unmask_shares,
)
from dpsketch.privacy.noise_shares import Consortium
from secure_sums import MEANING, Run, random_values

FIVE, SEVEN = Consortium(5, 4, 1, 4), Consortium(7, 5, 1, 5)


def expected(values: dict[str, list[np.ndarray]]) -> list[np.ndarray]:
    return [np.sum(parts, axis=0, dtype=parts[0].dtype) for parts in zip(*values.values(), strict=True)]


def same(one: list[np.ndarray], two: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize(("consortium", "dropped"), [(FIVE, []), (FIVE, ["h3"]), (SEVEN, ["h1", "h7"])])
def test_totals_are_exact_whoever_drops_out(consortium: Consortium, dropped: list[str]) -> None:
    run = Run(consortium)
    stay = [name for name in run.names if name not in dropped]
    values = random_values(stay, run.shape)
    run.to_survivors(values)
    assert same(run.unmask(stay), expected(values))
    assert not same(run.vectors[stay[0]], values[stay[0]])


def test_holders_may_drop_out_at_every_stage() -> None:
    """Seven: one never joins, one is silent after sending its vector; five sign and unmask six."""
    run = Run(SEVEN)
    joined, stay = run.names[1:], run.names[2:]
    values = random_values(joined, run.shape)
    run.join(joined)
    run.share(joined)
    run.mask(values)
    body = run.hub.take_manifests(run.signed(MASKED, joined))
    for name in stay:
        run.message(name, AGREE, run.holders[name].take_survivors(body, run.own(MASKED, name)))
    assert same(run.unmask(stay), expected(values))


def test_vectors_of_many_chunks() -> None:
    run = Run(Consortium(3, 3, 1, 3), shape=((1 << 20, 4), (0, 8), ((1 << 20) + 3, 8)))
    values = random_values(run.names, run.shape)
    run.to_survivors(values)
    assert same(run.unmask(run.names), expected(values))


def test_a_session_below_the_least_number_of_survivors_reveals_nothing() -> None:
    run = Run(FIVE)
    run.join()
    run.share()
    run.mask(random_values(run.names[:3], run.shape))
    with pytest.raises(FederationError, match="3 of at least 4 holders, so this session ends and reveals nothing"):
        run.hub.take_manifests(run.signed(MASKED, run.names[:3]))
    with pytest.raises(FederationError, match="3 of at least 4 holders"):  # the holder checks as well
        run.holders["h1"].take_survivors(collection(MASKED, run.signed(MASKED, run.names[:3])), run.own(MASKED, "h1"))


def test_too_few_shares_unmask_nothing() -> None:
    run = Run(FIVE)
    run.to_survivors(random_values(run.names, run.shape))
    run.unmask(run.names)
    with pytest.raises(FederationError, match="3 holders sent shares for unmasking, not 4"):
        run.totals(run.names[:3])


def test_later_stages_have_all_members() -> None:
    run = Run(FIVE, stage=1)
    run.join()
    run.share()
    run.mask(random_values(run.names[:4], run.shape))
    with pytest.raises(FederationError, match="4 of at least 5 holders"):
        run.survive(run.names[:4])


# What a coordinator or a network may try.


def test_two_versions_of_the_totals_end_the_next_stage() -> None:
    """The digest of a stage's totals is part of what the next stage's first messages sign."""
    run = Run(FIVE, stage=1)
    for name, previous in zip(run.names, [bytes(32)] * 4 + [bytes([1]) * 32], strict=True):
        holder = run.holders[name]
        holder.setting = replace(holder.setting, previous=previous)
        run.message(name, JOIN, holder.join())
    for name, other in (("h1", "h5"), ("h5", "h1")):
        with pytest.raises(FederationError, match=f"{other} signed other terms"):
            run.holders[name].take_joins(collection(JOIN, run.signed(JOIN)))


def test_every_public_fact_is_in_the_start_digest() -> None:
    setting = Run(FIVE).setting()
    others = [
        replace(setting, session=bytes(32)),
        replace(setting, stage=1),
        replace(setting, terms=bytes(32)),
        replace(setting, previous=bytes([1]) * 32),
        replace(setting, consortium=Consortium(5, 5, 1, 4)),
        replace(setting, consortium=Consortium(5, 4, 0, 4)),
        replace(setting, members=setting.members[1:]),
        replace(setting, coordinator="h1"),
        replace(setting, roster=Run(SEVEN).setting().roster),
    ]
    assert len({setting.start(), *(other.start() for other in others)}) == 10


def test_another_recipe_at_one_holder() -> None:
    run = Run(FIVE, terms={"h2": bytes(32)})
    with pytest.raises(FederationError, match="h2 signed other terms"):
        run.join()
    with pytest.raises(FederationError, match="h2 signed other terms"):  # a coordinator that does not check
        run.holders["h1"].take_joins(collection(JOIN, run.signed(JOIN)))


def test_a_vector_of_another_length_or_meaning() -> None:
    for shape, meaning, fact in (
        (((6, 8), (3, 4)), MEANING, "vector of h5 has another length"),
        (((5, 8), (3, 8)), MEANING, "vector of h5 has another length"),
        (((5, 8), (3, 4)), bytes(32), "vector of h5 holds other sums"),
    ):
        run = Run(FIVE)
        run.join()
        for name in run.names:
            each = (shape, meaning) if name == "h5" else (run.shape, MEANING)
            run.message(name, SHARES, run.holders[name].shares(each[1], each[0], run.draw))
        with pytest.raises(FederationError, match=fact):
            run.hub.take_shares(run.signed(SHARES))
        with pytest.raises(FederationError, match=fact):
            run.holders["h1"].take_shares(collection(SHARES, run.signed(SHARES)), run.own(SHARES, "h1"))


def test_inputs_that_two_holders_count() -> None:
    run = Run(FIVE)
    run.holders["h2"]._lineage = ("id h1",)
    with pytest.raises(FederationError, match="h2 counts an input that another holder counts too"):
        run.join()


def changed_key(run: Run, name: str, **changes: bytes) -> None:
    """A join with other keys, signed by that holder: as if the coordinator had its long-term key."""
    join = replace(Join.from_bytes(run.own(JOIN, name)), **changes)
    run.message(name, JOIN, join.to_bytes())


def test_a_tampered_key_breaks_the_signature() -> None:
    run = Run(FIVE)
    run.join()
    signed = run.signed(JOIN)
    for place in range(0, len(signed["h2"]), 5):
        data = bytearray(signed["h2"])
        data[place] ^= 4
        with pytest.raises(FederationError):
            run.holders["h1"].take_joins(collection(JOIN, signed | {"h2": bytes(data)}))
    stranger = Run(FIVE)
    forged = stranger.setting().envelope("h2", JOIN, run.own(JOIN, "h2"))
    with pytest.raises(FederationError, match="does not carry the signature"):
        run.holders["h1"].take_joins(
            collection(JOIN, signed | {"h2": forged.sign(replace(stranger.people["h3"], name="h2"))})
        )


def test_two_lists_of_members_end_at_the_shares() -> None:
    """A member with two sets of keys, shown to different holders."""
    run = Run(FIVE)
    run.join()
    changed_key(run, "h5", mask_key=Join.from_bytes(run.own(JOIN, "h5")).mask_key[::-1])
    run.holders["h1"].take_joins(collection(JOIN, run.signed(JOIN)))
    for name in run.names:
        run.message(name, SHARES, run.holders[name].shares(MEANING, run.shape, run.draw))
    with pytest.raises(FederationError, match="h1 was shown another list of members"):
        run.holders["h2"].take_shares(collection(SHARES, run.signed(SHARES)), run.own(SHARES, "h2"))
    own = {name: data for name, data in run.signed(SHARES).items() if name == "h1"}
    with pytest.raises(FederationError, match="1 of at least 4 holders"):
        run.holders["h1"].take_shares(collection(SHARES, own), run.own(SHARES, "h1"))


def test_equal_keys_and_keys_of_small_order() -> None:
    run = Run(FIVE)
    run.join()
    changed_key(run, "h5", mask_key=Join.from_bytes(run.own(JOIN, "h4")).mask_key)
    with pytest.raises(FederationError, match="fresh keys are equal"):
        run.holders["h1"].take_joins(collection(JOIN, run.signed(JOIN)))
    changed_key(run, "h5", share_key=bytes(32), mask_key=bytes([1]) + bytes(31))
    run.holders["h1"].take_joins(collection(JOIN, run.signed(JOIN)))
    with pytest.raises(FederationError, match="fresh key of h5 is none"):
        run.holders["h1"].shares(MEANING, run.shape, run.draw)


def test_a_list_without_the_own_message() -> None:
    run = Run(FIVE)
    run.join()
    with pytest.raises(FederationError, match="leaves out this holder's own message"):
        run.holders["h1"].take_joins(collection(JOIN, run.signed(JOIN, run.names[1:])))
    again = Run(FIVE)  # an earlier session's message of the same holder
    again.join()
    with pytest.raises(FederationError, match="leaves out this holder's own message"):
        run.holders["h1"].take_joins(collection(JOIN, again.signed(JOIN)))


def test_a_replayed_message_of_another_session_stage_or_round() -> None:
    run = Run(FIVE)
    run.join()
    envelope = run.setting().envelope("h2", JOIN, run.own(JOIN, "h2"))
    for other in (
        replace(envelope, session=bytes(32)),
        replace(envelope, stage=1),
        replace(envelope, round=SHARES),
        replace(envelope, sequence=1),
        replace(envelope, receiver="h1"),
    ):
        signed = run.signed(JOIN) | {"h2": other.sign(run.people["h2"])}
        with pytest.raises(FederationError, match="h2 does not belong to round join of this session"):
            run.holders["h1"].take_joins(collection(JOIN, signed))


def test_a_member_listed_twice_or_who_is_none() -> None:
    run = Run(FIVE)
    body = run.join()
    twice = collection(JOIN, run.signed(JOIN) | {"h6": run.sent[JOIN]["h5"]})
    with pytest.raises(FederationError):
        run.holders["h1"].take_joins(twice)
    with pytest.raises(FederationError):
        run.holders["h1"].take_joins(body + b"\0")
    hub = run.setting().envelope("hub", JOIN, run.own(JOIN, "h5"))
    hub = replace(hub, receiver="hub")
    with pytest.raises(FederationError, match="hub does not belong to round join"):
        run.holders["h1"].take_joins(
            collection(JOIN, run.signed(JOIN, run.names[:4]) | {"h5": hub.sign(run.people["hub"])})
        )


def test_a_tampered_share() -> None:
    run = Run(FIVE)
    run.join()
    for name in run.names:
        run.message(name, SHARES, run.holders[name].shares(MEANING, run.shape, run.draw))
    sealed = SealedShares.from_bytes(run.own(SHARES, "h5"), run.names[:4])
    run.message("h5", SHARES, replace(sealed, sealed=dict(sealed.sealed) | {"h1": bytes(80)}).to_bytes())
    with pytest.raises(FederationError, match="shares that h5 encrypted cannot be decrypted"):
        run.holders["h1"].take_shares(collection(SHARES, run.signed(SHARES)), run.own(SHARES, "h1"))
    swapped = dict(sealed.sealed) | {"h1": sealed.sealed["h2"]}  # meant for another receiver
    run.message("h5", SHARES, replace(sealed, sealed=swapped).to_bytes())
    with pytest.raises(FederationError, match="shares that h5 encrypted cannot be decrypted"):
        run.holders["h1"].take_shares(collection(SHARES, run.signed(SHARES)), run.own(SHARES, "h1"))


@pytest.mark.parametrize("dropped", [[], ["h5"]])
def test_a_wrong_share_at_the_end_is_noticed(dropped: list[str]) -> None:
    run = Run(FIVE)
    stay = [name for name in run.names if name not in dropped]
    run.to_survivors(random_values(stay, run.shape))
    run.unmask(stay)
    data = bytearray(run.own(UNMASK, "h2"))
    data[-1] ^= 1
    run.message("h2", UNMASK, bytes(data))
    with pytest.raises(FederationError, match="shares about h5 are wrong"):
        run.totals(stay)


def test_a_tampered_list_of_survivors() -> None:
    run = Run(FIVE)
    body = run.to_survivors(random_values(run.names, run.shape))
    holder = run.holders["h1"]
    for place in range(40, len(body), 97):
        changed = bytearray(body)
        changed[place] ^= 1
        with pytest.raises(FederationError):
            holder.take_survivors(bytes(changed), run.own(MASKED, "h1"))
    never = run.setting().envelope("h4", MASKED, tagged_manifest(run, "h4", bytes(32)))
    with pytest.raises(FederationError, match="h4 was shown another list of shares"):
        holder.take_survivors(
            collection(MASKED, run.signed(MASKED) | {"h4": never.sign(run.people["h4"])}), run.own(MASKED, "h1")
        )


def tagged_manifest(run: Run, name: str, transcript: bytes) -> bytes:
    holder = run.holders[name]
    kept, holder.after_shares = holder.after_shares, transcript
    body = holder.masked(VectorDigest().digest())
    holder.after_shares = kept
    return body


def equivocating(run: Run) -> tuple[bytes, bytes]:
    """All five sent vectors; the coordinator shows one list without h5 and one without h4."""
    run.join()
    run.share()
    run.mask(random_values(run.names, run.shape))
    without = [run.signed(MASKED, [name for name in run.names if name != left]) for left in ("h5", "h4")]
    return collection(MASKED, without[0]), collection(MASKED, without[1])


def test_two_lists_of_survivors_are_both_refused() -> None:
    run = Run(FIVE)
    one, two = equivocating(run)
    for name, body in (("h1", one), ("h2", one), ("h4", one), ("h3", two), ("h5", two)):
        run.message(name, AGREE, run.holders[name].take_survivors(body, run.own(MASKED, name)))
    for name in ("h1", "h3"):
        with pytest.raises(FederationError, match=r"different lists of survivors|does not belong"):
            run.holders[name].take_agreements(collection(AGREE, run.signed(AGREE)))
    for name, signers in (("h1", ["h1", "h2", "h4"]), ("h3", ["h3", "h5"])):
        with pytest.raises(FederationError, match="holders agreed to the list of survivors, not 4"):
            run.holders[name].take_agreements(collection(AGREE, run.signed(AGREE, signers)))


def test_one_holder_agrees_to_one_list_only() -> None:
    run = Run(FIVE)
    one, two = equivocating(run)
    for name in ("h1", "h2"):
        run.holders[name].take_survivors(one, run.own(MASKED, name))
        with pytest.raises(FederationError, match="agreed to another list of survivors"):
            run.holders[name].take_survivors(two, run.own(MASKED, name))


def test_with_a_colluder_no_second_list_gets_enough_signatures() -> None:
    """h1 colludes and signs both lists. At most three honest holders sign either: with h1 four sign one, and the other
    ends with at most two.
    """
    run = Run(FIVE)
    one, two = equivocating(run)
    honest = {"h2": one, "h3": one, "h4": one, "h5": two}
    run.message("h1", AGREE, run.holders["h1"].take_survivors(one, run.own(MASKED, "h1")))
    for name, body in honest.items():
        run.message(name, AGREE, run.holders[name].take_survivors(body, run.own(MASKED, name)))
    run.holders["h2"].take_agreements(collection(AGREE, run.signed(AGREE, ["h1", "h2", "h3", "h4"])))
    forged = run.setting().envelope("h1", AGREE, run.own(AGREE, "h5")).sign(run.people["h1"])
    with pytest.raises(FederationError, match="2 holders agreed"):
        run.holders["h5"].take_agreements(collection(AGREE, {"h1": forged, "h5": run.sent[AGREE]["h5"]}))


def test_a_threshold_of_half_would_unmask_a_single_holder() -> None:
    """Why 2T > K + t: with K = 5, T = 3 and one colluder, two lists that differ in h5 both get three signatures, and
    the two sums differ by the vector of h5. Such numbers are refused from the start.
    """
    with pytest.raises(Exception, match="does not protect"):
        Consortium(5, 3, 1, 3)
    weak = object.__new__(Consortium)
    for name, number in (("holders", 5), ("least", 3), ("colluders", 1), ("threshold", 3)):
        object.__setattr__(weak, name, number)
    run = Run(weak)
    values = random_values(run.names, run.shape)
    run.join()
    run.share()
    run.mask(values)
    sums = []
    for left, signers in (([], ["h1", "h4", "h5"]), (["h5"], ["h1", "h2", "h3"])):
        listed = [name for name in run.names if name not in left]
        for name in signers:
            if name == "h1":  # the colluder answers twice
                run.holders[name].secrets.agreed = bytes(32)
                run.holders[name].take_shares(collection(SHARES, run.signed(SHARES)), run.own(SHARES, name))
            body = run.hub.take_manifests(run.signed(MASKED, listed))
            run.message(name, AGREE, run.holders[name].take_survivors(body, run.own(MASKED, name)))
        sums.append(run.unmask(signers))
    assert same([all_ - rest for all_, rest in zip(*sums, strict=True)], values["h5"])


def test_shares_of_key_and_seed_are_never_both_revealed() -> None:
    run = Run(FIVE)
    run.to_survivors(random_values(run.names[:4], run.shape))
    run.unmask(run.names[:4])
    holder = run.holders["h1"]
    for peer, (key, seed) in holder._peers.items():
        kept, gone = (key, seed) if peer == "h5" else (seed, key)
        assert not any(gone)
        assert unmask_shares(run.own(UNMASK, "h1"), holder.after_survivors, run.names)[peer] == kept


def test_a_survivor_list_with_someone_who_never_shared() -> None:
    run = Run(SEVEN)
    run.join()
    run.share(run.names[:6])
    run.mask(random_values(run.names[:6], run.shape))
    run.message("h7", MASKED, tagged_manifest(run, "h7", run.holders["h1"].after_shares))
    with pytest.raises(FederationError, match="h7 does not belong to round masked"):
        run.holders["h1"].take_survivors(collection(MASKED, run.signed(MASKED)), run.own(MASKED, "h1"))


def test_secrets_are_overwritten() -> None:
    run = Run(FIVE)
    run.to_survivors(random_values(run.names, run.shape))
    holder = run.holders["h1"]
    secrets: list[Any] = [holder.secrets.mask_key, holder.secrets.share_key, holder.secrets.seed]
    secrets += [share for pair in holder._peers.values() for share in pair]
    assert all(any(each) for each in secrets)
    holder.wipe()
    assert not any(any(each) for each in secrets)


def test_a_restarted_holder_goes_on_with_its_stored_messages() -> None:
    run = Run(FIVE)
    values = random_values(run.names, run.shape)
    joins = run.join()
    shares = run.share()
    run.mask(values)
    kept = run.holders["h1"].secrets
    again = HolderSum(run.setting(), "h1", replace(kept), ["id h1"])
    again.take_joins(joins)
    again.take_shares(shares, run.own(SHARES, "h1"))
    run.holders["h1"] = again
    run.survive(run.names)
    assert same(run.unmask(run.names), expected(values))


def test_the_session_must_be_the_own() -> None:
    """Secrets of one setting do not open what was made in another."""
    run, other = Run(FIVE), Run(FIVE, stage=1)
    run.join()
    other.join()
    with pytest.raises(FederationError):
        run.holders["h1"].take_joins(collection(JOIN, other.signed(JOIN)))
    fresh = HolderSum(run.setting(), "h1", Secrets.fresh(run.draw), ["id h1"])
    with pytest.raises(FederationError, match="own message"):
        fresh.take_joins(collection(JOIN, run.signed(JOIN)))
    assert Envelope.verify(run.sent[JOIN]["h1"], run.people["hub"].roster).round == JOIN
