"""The coordinator's side of a secure sum, without input or output: it has no secrets, and sees masked vectors only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpsketch.errors import FederationError
from dpsketch.federate.envelope import Envelope
from dpsketch.federate.mask_stream import MaskStream
from dpsketch.federate.secret_sharing import secret_from
from dpsketch.federate.secure_sum import (
    check_enough,
    checked_joins,
    checked_manifest,
    checked_shares,
    pair_mask_key,
    pair_sign,
    public_key,
    self_mask_key,
)
from dpsketch.federate.sum_messages import (
    AGREE,
    JOIN,
    MASKED,
    SHARES,
    Join,
    SealedShares,
    Setting,
    Shape,
    collection,
    commitment,
    next_transcript,
    tagged,
    unmask_shares,
)

Signed = Mapping[str, bytes]  # signed messages of a round by sender


class CoordinatorSum:
    """One stage at the coordinator. Every method takes the holders' messages of a round and returns the collection that
    goes back to everyone; the same messages give the same collection.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._joins: dict[str, Join] = {}
        self._sealed: dict[str, SealedShares] = {}
        self._vectors: dict[str, bytes] = {}
        self._after_joins = self._after_shares = b""
        self.after_survivors = b""
        self.lineage: frozenset[str] = frozenset()

    @property
    def shape(self) -> Shape:
        return next(iter(self._sealed.values())).shape

    @property
    def meaning(self) -> bytes:
        return next(iter(self._sealed.values())).meaning

    @property
    def survivors(self) -> tuple[str, ...]:
        """The holders in the sum."""
        return tuple(self._vectors)

    def vector_of(self, name: str) -> bytes:
        """The digest of a survivor's masked vector."""
        return self._vectors[name]

    def check_join(self, message: Envelope) -> None:
        """Refuse a holder with other terms as soon as it comes."""
        checked_joins(self.setting, {message.sender: Join.from_bytes(message.body)})

    def take_joins(self, signed: Signed) -> bytes:
        body, found = self._collected(signed, JOIN, self.setting.members)
        self._joins = {name: Join.from_bytes(message.body) for name, message in found.items()}
        self.lineage = checked_joins(self.setting, self._joins)
        self._after_joins = next_transcript(self.setting.start(), body)
        return body

    def take_shares(self, signed: Signed) -> bytes:
        body, found = self._collected(signed, SHARES, self._joins)
        self._sealed = checked_shares(self._joins, self._after_joins, found)
        self._after_shares = next_transcript(self._after_joins, body)
        return body

    def take_manifests(self, signed: Signed) -> bytes:
        body, found = self._collected(signed, MASKED, self._sealed)
        self._vectors = {
            name: checked_manifest(MASKED, self._after_shares, name, message.body) for name, message in found.items()
        }
        self.after_survivors = next_transcript(self._after_shares, body)
        return body

    def take_agreements(self, signed: Signed) -> bytes:
        body = collection(AGREE, signed)
        for name, message in self.setting.collected(body, AGREE, self._vectors).items():
            if message.body != tagged(AGREE).raw(self.after_survivors).bytes():
                raise FederationError(f"{name} agreed to another list of survivors", "start a new session")
        self._check_threshold(len(signed), "agreed to the list of survivors")
        return body

    def masks(self, found: Mapping[str, Envelope]) -> MaskStream:
        """What to add to the sum of the masked vectors of all survivors, from the shares of enough of them."""
        self._check_threshold(len(found), "sent shares for unmasking")
        shares = {
            name: unmask_shares(message.body, self.after_survivors, self._sealed) for name, message in found.items()
        }
        keys = []
        for name in self._sealed:
            secret = self._recovered(name, shares)
            if name in self._vectors:
                keys.append((self_mask_key(self._after_shares, name, secret), -1))
            else:
                for peer in self._vectors:
                    key = pair_mask_key(self._after_shares, name, peer, secret, self._joins[peer].mask_key)
                    keys.append((key, pair_sign(name, peer)))
            secret[:] = bytes(len(secret))
        return MaskStream(keys)

    def _recovered(self, name: str, shares: Mapping[str, Mapping[str, bytes]]) -> bytearray:
        """The self seed of a survivor, or the mask key of one that dropped out, checked against what they published."""
        numbers = {holder: number for number, holder in enumerate(self._joins, 1)}
        used = list(shares)[: self.setting.consortium.threshold]
        secret = secret_from({numbers[holder]: shares[holder][name] for holder in used})
        if name in self._vectors:
            right = commitment(secret) == self._sealed[name].commitment
        else:
            right = public_key(secret) == self._joins[name].mask_key
        if not right:
            raise FederationError(
                f"the shares about {name} are wrong: {name} or one of {', '.join(used)} sent a wrong one",
                "start a new session without the one who did",
            )
        return secret

    def _collected(
        self, signed: Signed, round_: str, senders: Sequence[str] | Mapping[str, object]
    ) -> tuple[bytes, dict[str, Envelope]]:
        body = collection(round_, signed)
        found = self.setting.collected(body, round_, senders)
        check_enough(self.setting, found, round_)
        return body, found

    def _check_threshold(self, count: int, done: str) -> None:
        threshold = self.setting.consortium.threshold
        if count < threshold:
            raise FederationError(
                f"{count} holders {done}, not {threshold}, so this session ends and reveals nothing",
                "start a new session",
            )
