"""The kernel that a user asks for, and the parts of a release that have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpsketch.errors import QueryError
from dpsketch.learn.estimators import radial_kernels as radial
from dpsketch.learn.estimators.radial_kernels import Bandwidth, Radial
from dpsketch.learn.models.density.fourier_kernel import MOST_NORMALISED, FourierKernel, fourier_kernels
from dpsketch.learn.models.density.full_table import FullTable, full_table
from dpsketch.learn.models.density.hashed import Hashed, hashed_counters
from dpsketch.learn.saved import Facts
from dpsketch.maps.hashed.hashes import Euclidean, HashFamily, hash_from_dict
from dpsketch.recipe.tasks.density_task import default_bandwidth
from dpsketch.schema.schema import Schema
from dpsketch.sketch.released import ReleasedSketch

Fouriers = Sequence[tuple[Radial, FourierKernel]]


@dataclass(frozen=True)
class DensityParts:
    """What answers densities of a kernel: hashed counters, a table, Fourier sums, or several of them. The kernel is one
    of distances whenever it can be written so.
    """

    kernel: HashFamily | Radial
    counters: Hashed | None
    table: FullTable | None
    fourier: FourierKernel | None


@dataclass(frozen=True)
class KernelChoice:
    """A hash, or the name of a kernel with a bandwidth; by default, the release's own."""

    kernel: HashFamily | str | None = None
    bandwidth: Bandwidth | None = None

    def __post_init__(self) -> None:
        if self.kernel is not None and not isinstance(self.kernel, HashFamily | str):
            raise QueryError(
                f"kernel must be one of {', '.join(radial.NAMES)} or a hash such as Euclidean(0.1), "
                f"got {self.kernel!r} instead"
            )
        if isinstance(self.kernel, HashFamily) and self.bandwidth is not None:
            raise QueryError("the bandwidth is part of the kernel", "write kernel=Euclidean(bandwidth)")

    def parts(self, released: ReleasedSketch, columns: tuple[str, ...] | None) -> DensityParts | None:
        """The parts of a release that have this kernel; None if the release has no densities of these columns at all.

        Of several tables of counters with the same kernel, the first of the most accurate is chosen.
        """
        schema, held = released.schema, hashed_counters(released, columns)
        alike = [each for each in held if self._is_of(schema, each)]
        lead = next(iter(alike or held), None)
        table = full_table(released, columns or (None if lead is None else lead.columns))
        first = next((each.columns for each in (table, lead) if each is not None), None)
        fourier = fourier_kernels(released, columns or first)
        if lead is None and table is None and not fourier:
            return None
        kernel = self._on(schema, lead, table, fourier)
        same = [each for each in alike if (each.hash, set(each.columns)) == (alike[0].hash, set(alike[0].columns))]
        counters = min(same, key=lambda each: each.typical_error, default=None)
        usable = table if isinstance(kernel, Radial) else None
        of_kernel = (own for each, own in fourier if isinstance(kernel, Radial) and each.same(kernel))
        found = DensityParts(kernel, counters, usable, next(of_kernel, None))
        if found.counters is None and found.table is None and found.fourier is None:
            raise self._refused(held, table, fourier)
        return found

    def of_distance(self, schema: Schema, columns: tuple[str, ...], default: Euclidean) -> Radial:
        """The requested kernel on these columns, by distances alone: what rows of a joint distribution answer. Labels
        are one width of the bounds apart.
        """
        kernel = self.kernel
        if kernel is None and self.bandwidth is None:
            kernel = default
        labels = [name for name in columns if not schema.column(name).numeric]
        if isinstance(kernel, HashFamily) and not isinstance(kernel, Euclidean):
            raise QueryError(
                f"this release has no hashed counters with {kernel}, and its rows answer kernels of distance alone",
                "ask for euclidean, gaussian or laplacian, or release a part Race(…, hash=…)",
            )
        if labels and (isinstance(self.bandwidth, Mapping) or kernel in (radial.GAUSSIAN, radial.LAPLACIAN)):
            raise QueryError(
                f"column '{labels[0]}' holds labels, which have no units and no volume",
                "leave it out of columns, or ask for the euclidean kernel with one bandwidth in widths of the bounds",
            )
        if isinstance(kernel, Euclidean):
            numbers = [name for name in columns if name not in labels]
            spans = dict(zip(numbers, radial.euclidean(schema, numbers, kernel).spans, strict=True))
            every = tuple(spans.get(name, 1 / kernel.bandwidth) for name in columns)
            return Radial(radial.EUCLIDEAN, kernel.power, every)
        if self.bandwidth is None:
            raise QueryError(f"kernel '{kernel}' needs a bandwidth", "pass bandwidth=0.05, in widths of the bounds")
        if len(columns) > MOST_NORMALISED and kernel in (radial.GAUSSIAN, radial.LAPLACIAN):
            raise QueryError(
                f"kernel '{kernel}' has no density in more than {MOST_NORMALISED} columns",
                "name fewer, or ask for euclidean",
            )
        return radial.named(schema, columns, kernel or radial.EUCLIDEAN, self.bandwidth)

    def to_dict(self) -> Facts:
        """Plain values."""
        kernel, bandwidth = self.kernel, self.bandwidth
        if isinstance(bandwidth, Mapping):
            plain: object = {str(name): _plain(number) for name, number in bandwidth.items()}
        else:
            plain = None if bandwidth is None else _plain(bandwidth)
        return {"kernel": kernel.to_dict() if isinstance(kernel, HashFamily) else kernel, "bandwidth": plain}

    @classmethod
    def from_dict(cls, facts: Facts) -> KernelChoice:
        """Without entries, as in older files, the release's own kernel."""
        kernel = facts.get("kernel")
        return cls(hash_from_dict(kernel) if isinstance(kernel, Mapping) else kernel, facts.get("bandwidth"))

    def _is_of(self, schema: Schema, hashed: Hashed) -> bool:
        """Whether this is the kernel of these counters."""
        try:
            wanted = self._on(schema, hashed, None)
        except QueryError:  # a bandwidth of other columns
            return False
        if not isinstance(wanted, Radial):
            return hashed.hash == wanted
        family = hashed.hash
        if not isinstance(family, Euclidean) or hashed.embedded or wanted.name != radial.EUCLIDEAN:
            return False
        return radial.euclidean(schema, hashed.columns, family).same(wanted)

    def _on(
        self, schema: Schema, hashed: Hashed | None, table: FullTable | None, fourier: Fouriers = ()
    ) -> HashFamily | Radial:
        """The requested kernel on the columns of a part."""
        columns = next(each.columns for each in (table, hashed, *(own for _, own in fourier)) if each is not None)
        own = fourier[0][0] if hashed is None and table is None else None
        kernel = self.kernel
        if kernel is None and self.bandwidth is None:
            if own is not None:
                return own
            if hashed is not None:
                kernel = hashed.hash
            else:
                assert table is not None
                widest = max(axis.step for axis in table.axes)
                kernel = table.kernel or Euclidean(max(default_bandwidth(len(columns)), widest))
        if isinstance(kernel, HashFamily):
            embedded = hashed is not None and hashed.embedded
            if isinstance(kernel, Euclidean) and not embedded and all(schema.column(n).numeric for n in columns):
                return radial.euclidean(schema, columns, kernel)
            return kernel
        if self.bandwidth is None:
            raise QueryError(f"kernel '{kernel}' needs a bandwidth", "pass bandwidth=0.05, in widths of the bounds")
        default = radial.EUCLIDEAN if own is None else own.name
        return radial.named(schema, columns, kernel or default, self.bandwidth)

    def _refused(self, held: list[Hashed], table: FullTable | None, fourier: Fouriers) -> QueryError:
        has = [f"hashed counters with {each.hash} on {', '.join(each.columns)}" for each in held]
        if table is not None:
            has.append(f"a table of {', '.join(table.columns)}, for kernels of distance")
        has += [f"Fourier sums with kernel '{kernel.name}', width {1 / max(kernel.spans):g}" for kernel, _ in fourier]
        asked = self.kernel if self.kernel is not None else f"bandwidth {self.bandwidth}"
        return QueryError(f"this release does not hold {asked}", f"it holds {'; '.join(dict.fromkeys(has))}")


def _plain(number: float) -> float:
    return number if type(number) is int else float(number)
