"""The time at which this process imported dpsketch: the package imports this module before any other."""

import time

STARTED = time.time()
