"""Origins of tuned constants: what a number was chosen on, by which command, and the decision that explains it.

A tuned constant was chosen by looking at results: a threshold of an estimator, a share of a budget, a prior. Its
annotation is `Annotated[float, Tuned(…)]`, so that its value stays a plain number. docs/constants.md lists all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

STUDY_TABLES = "lifesci, adult, occupancy, htru2, california"
CLASSIFIER_TABLES = "occupancy, htru2, nomao, skin, cod_rna, mnist, covtype"
DENSITY_TABLES = "skin, cod_rna, covtype, sf_salaries"
GRID_TABLES = "cabs, skin, california, covtype"
BY_HAND = "hand"
PROTOTYPE = "a prototype that was not kept"
NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class Tuned:
    """The origin of a constant: the tables it was chosen on, the command that chose it (or by hand), and the number of
    its page in docs/decisions.
    """

    on: str = NOT_RECORDED
    by: str = NOT_RECORDED
    decision: int | None = None


UNRECORDED = Tuned()
