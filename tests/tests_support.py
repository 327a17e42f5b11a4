"""Values that tests need at import time, for parametrisation."""

import dpsketch as dps
from conftest import MIXED

MIXED_SCHEMA = dps.Schema.from_dict(MIXED)
