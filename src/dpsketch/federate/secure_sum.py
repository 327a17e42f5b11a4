"""A holder's side of a secure sum, as a state machine without input or output: docs/formats/secure-sum.md.

Guarantee: against a coordinator that does anything and up to `colluders` holders who give it all they see, nothing but
the sum over at least `least` holders can be computed from a holder's messages, by anyone who cannot break X25519, AES,
SHA-256, ChaCha20-Poly1305 or Ed25519.
Source: Bonawitz et al. 2017, the protocol against active adversaries; docs/decisions/105.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from dpsketch.errors import FederationError
from dpsketch.federate.canonical import Reader
from dpsketch.federate.envelope import Envelope
from dpsketch.federate.mask_stream import SEED, MaskStream, derived_key
from dpsketch.federate.secret_sharing import shares_of
from dpsketch.federate.sum_messages import (
    AGREE,
    DIGEST,
    JOIN,
    MASKED,
    SHARES,
    Join,
    SealedShares,
    Setting,
    Shape,
    commitment,
    digests,
    next_transcript,
    tagged,
    unmask_body,
)

_NONCE = bytes(12)  # every key encrypts one message
_HINT = "start a new session with everybody's agreement"


@dataclass
class Secrets:
    """What a holder keeps to itself during one stage, in memory that `wipe` overwrites.

    `own_share` is its own share of its self seed. `agreed` is the transcript
    with the one list of survivors that it signed.
    """

    mask_key: bytearray
    share_key: bytearray
    seed: bytearray
    own_share: bytearray = field(default_factory=lambda: bytearray(SEED))
    agreed: bytes = bytes(DIGEST)

    @classmethod
    def fresh(cls, draw: Callable[[int], bytes]) -> Secrets:
        return cls(bytearray(draw(SEED)), bytearray(draw(SEED)), bytearray(draw(SEED)))

    def wipe(self) -> None:
        for each in (self.mask_key, self.share_key, self.seed, self.own_share):
            each[:] = bytes(len(each))


class HolderSum:
    """One stage at one holder. Every method takes the coordinator's message of a round, or returns the own next body.

    The calls follow one another in the order of the methods. After a restart the same calls with the same messages
    lead to the same state; a body that was sent is sent again as it was stored.
    """

    def __init__(self, setting: Setting, name: str, secrets: Secrets, lineage: Iterable[str] = ()) -> None:
        self.setting, self.name, self.secrets = setting, name, secrets
        self._lineage = tuple(sorted(lineage))
        self._joins: dict[str, Join] = {}
        self._sealed: dict[str, SealedShares] = {}
        self._peers: dict[str, tuple[bytearray, bytearray]] = {}  # shares of mask key and self seed
        self.survivors: tuple[str, ...] = ()
        self.after_joins = self.after_shares = self.after_survivors = b""  # transcripts

    @property
    def shape(self) -> Shape:
        return self._sealed[self.name].shape

    def join(self) -> bytes:
        """Round 0: the start digest and fresh public keys."""
        mask_key, share_key = public_key(self.secrets.mask_key), public_key(self.secrets.share_key)
        return Join(self.setting.start(), mask_key, share_key, self._lineage).to_bytes()

    def take_joins(self, body: bytes) -> frozenset[str]:
        """Check the list of those who joined. Returns the ids of all their inputs."""
        found = self._collected(body, JOIN, self.setting.members, self.join())
        self._joins = {name: Join.from_bytes(message.body) for name, message in found.items()}
        self.after_joins = next_transcript(self.setting.start(), body)
        return checked_joins(self.setting, self._joins)

    def shares(self, meaning: bytes, shape: Shape, draw: Callable[[int], bytes]) -> bytes:
        """Round 1: shares of the own mask key and self seed, encrypted to each peer."""
        threshold, names = self.setting.consortium.threshold, list(self._joins)
        keys, seeds = (
            shares_of(secret, threshold, len(names), draw) for secret in (self.secrets.mask_key, self.secrets.seed)
        )
        sealed = {}
        for number, name in enumerate(names, 1):
            if name == self.name:
                self.secrets.own_share[:] = seeds[number]
            else:
                sealed[name] = self._cipher(self.name, name).encrypt(_NONCE, keys[number] + seeds[number], None)
        for share in (*keys.values(), *seeds.values()):
            share[:] = bytes(SEED)
        return SealedShares(self.after_joins, meaning, shape, commitment(self.secrets.seed), sealed).to_bytes()

    def take_shares(self, body: bytes, own: bytes) -> None:
        """Check and decrypt the shares of all peers. `own` is what `shares` returned."""
        found = self._collected(body, SHARES, self._joins, own)
        self._sealed = checked_shares(self._joins, self.after_joins, found)
        for name, each in self._sealed.items():
            if name != self.name:
                try:
                    opened = bytearray(self._cipher(name, self.name).decrypt(_NONCE, each.sealed[self.name], None))
                except InvalidTag:
                    raise FederationError(f"the shares that {name} encrypted cannot be decrypted", _HINT) from None
                self._peers[name] = opened[:SEED], opened[SEED:]
                opened[:] = bytes(len(opened))
        self.after_shares = next_transcript(self.after_joins, body)

    def masks(self) -> MaskStream:
        """Round 2: the masks of the own vector. They may be added to one vector only, ever."""
        keys = [(self_mask_key(self.after_shares, self.name, self.secrets.seed), 1)]
        for peer in self._sealed:
            if peer != self.name:
                key = pair_mask_key(
                    self.after_shares, self.name, peer, self.secrets.mask_key, self._joins[peer].mask_key
                )
                keys.append((key, pair_sign(self.name, peer)))
        return MaskStream(keys)

    def masked(self, vector: bytes) -> bytes:
        """Round 2: which masked vector was sent."""
        return digests(MASKED, self.after_shares, vector)

    def take_survivors(self, body: bytes, own: bytes) -> bytes:
        """Round 3: check the list of those whose vectors arrived, and agree to it. `own` is what `masked` returned."""
        found = self._collected(body, MASKED, self._sealed, own)
        for name, message in found.items():
            checked_manifest(MASKED, self.after_shares, name, message.body)
        transcript = next_transcript(self.after_shares, body)
        if self.secrets.agreed not in (bytes(DIGEST), transcript):
            raise FederationError("this holder agreed to another list of survivors", "the coordinator is not honest")
        self.secrets.agreed = self.after_survivors = transcript
        self.survivors = tuple(found)
        return self.agreement()

    def agreement(self) -> bytes:
        return tagged(AGREE).raw(self.after_survivors).bytes()

    def take_agreements(self, body: bytes) -> bytes:
        """Round 4: shares for unmasking, once enough survivors have signed this list and no other."""
        setting = self.setting
        found = setting.collected(body, AGREE, self.survivors)
        if any(message.body != self.agreement() for message in found.values()):
            raise FederationError("holders were shown different lists of survivors", "the coordinator is not honest")
        if len(found) < setting.consortium.threshold:
            raise FederationError(
                f"{len(found)} holders agreed to the list of survivors, not {setting.consortium.threshold}", _HINT
            )
        shares = []
        for name in self._sealed:
            if name == self.name:
                shares.append(self.secrets.own_share)
            else:  # one of the two, and the other is forgotten
                key, seed = self._peers[name]
                shown, hidden = (seed, key) if name in self.survivors else (key, seed)
                hidden[:] = bytes(SEED)
                shares.append(shown)
        return unmask_body(self.after_survivors, shares)

    def wipe(self) -> None:
        """Forget all secrets."""
        self.secrets.wipe()
        for pair in self._peers.values():
            for each in pair:
                each[:] = bytes(SEED)

    def _collected(self, body: bytes, round_: str, senders: Iterable[str], own: bytes) -> dict[str, Envelope]:
        """The messages of a list that has enough members and the own message as it was sent."""
        found = self.setting.collected(body, round_, senders)
        if self.name not in found or found[self.name].body != own:
            raise FederationError(f"the list of round {round_} leaves out this holder's own message", _HINT)
        check_enough(self.setting, found, round_)
        return found

    def _cipher(self, sender: str, receiver: str) -> ChaCha20Poly1305:
        """The cipher for shares from one holder to another, one of whom is this one."""
        peer = receiver if sender == self.name else sender
        secret = _exchanged(self.secrets.share_key, self._joins[peer].share_key, peer)
        info = tagged("share key").raw(self.after_joins).text(sender).text(receiver)
        return ChaCha20Poly1305(bytes(derived_key(secret, info.bytes())))


def checked_joins(setting: Setting, joins: Mapping[str, Join]) -> frozenset[str]:
    """The ids of all inputs. Refuses other terms, keys that occur twice, and inputs that two holders have."""
    ids: set[str] = set()
    for name, join in joins.items():
        if join.start != setting.start():
            raise FederationError(
                f"{name} signed other terms", "compare rosters, schemas, recipes, budgets and versions"
            )
        if not ids.isdisjoint(join.lineage):
            raise FederationError(f"{name} counts an input that another holder counts too", "leave one of them out")
        ids.update(join.lineage)
    keys = [key for join in joins.values() for key in (join.mask_key, join.share_key)]
    if len(set(keys)) < len(keys):
        raise FederationError("two of the holders' fresh keys are equal", _HINT)
    return frozenset(ids)


def checked_shares(
    joins: Mapping[str, Join], transcript: bytes, found: Mapping[str, Envelope]
) -> dict[str, SealedShares]:
    """The messages of round 1, all about the same sum of vectors of the same lengths."""
    sealed = {
        name: SealedShares.from_bytes(message.body, (peer for peer in joins if peer != name))
        for name, message in found.items()
    }
    first = next(iter(sealed.values()))
    for name, each in sealed.items():
        if each.transcript != transcript:
            raise FederationError(f"{name} was shown another list of members", "the coordinator is not honest")
        if each.shape != first.shape:
            raise FederationError(f"the vector of {name} has another length", "compare schemas, recipes and versions")
        if each.meaning != first.meaning:
            raise FederationError(f"the vector of {name} holds other sums", "compare recipes and versions")
    return sealed


def checked_manifest(kind: str, transcript: bytes, name: str, body: bytes) -> bytes:
    """The digest of the vector that a manifest names."""
    reader = Reader(body, tagged(kind).bytes(), f"a message of {name}")
    seen, vector = reader.raw(DIGEST), reader.raw(DIGEST)
    reader.end()
    if seen != transcript:
        raise FederationError(f"{name} was shown another list of shares", "the coordinator is not honest")
    return vector


def check_enough(setting: Setting, found: Iterable[str], round_: str) -> None:
    """Refuse a list with fewer holders than the sum must have, so that nothing is revealed about fewer."""
    count = len(list(found))
    if count < setting.least:
        raise FederationError(
            f"round {round_} has {count} of at least {setting.least} holders, so this session ends and reveals nothing",
            _HINT,
        )


def self_mask_key(transcript: bytes, name: str, seed: bytes | bytearray) -> bytearray:
    return derived_key(seed, tagged("self mask").raw(transcript).text(name).bytes())


def pair_mask_key(transcript: bytes, name: str, peer: str, secret: bytes | bytearray, public: bytes) -> bytearray:
    """The key of the masks that cancel between two holders: the same at both."""
    info = tagged("pair mask").raw(transcript).text(min(name, peer)).text(max(name, peer))
    return derived_key(_exchanged(secret, public, peer), info.bytes())


def pair_sign(name: str, peer: str) -> int:
    """Whether a holder adds or subtracts the masks that it shares with a peer."""
    return 1 if name < peer else -1


def public_key(secret: bytes | bytearray) -> bytes:
    return _private(secret).public_key().public_bytes_raw()


def _private(secret: bytes | bytearray) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(secret)


def _exchanged(secret: bytes | bytearray, public: bytes, peer: str) -> bytes:
    try:
        return _private(secret).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:  # a point of small order: the shared secret would be known to everybody
        raise FederationError(f"the fresh key of {peer} is none", _HINT) from None
