"""Shares of cells whose logarithms are smooth."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from dpsketch.numerics.arrays import Floats
from dpsketch.numerics.tuned import BY_HAND, Tuned

RIDGE: Annotated[float, Tuned("lifesci, htru2", by=BY_HAND, decision=10)] = 1e-5  # more leaves mass in empty tails
NEWTON_STEPS = 30
GAIN = 1e-2  # in χ²/2, below which Newton steps stop


def smooth_minimum(hessian: Floats, linear: Floats, penalty: Floats, theta: Floats, even: Floats) -> Floats:
    """Log shares θ, exp(θ) of sum one, that minimise ½·pᵀHp − fᵀp + ½·(θ−e)ᵀQ(θ−e) for p = exp(θ), where e, `even`, are
    those of an even density: Levenberg–Marquardt.
    """
    penalty = penalty + RIDGE * (np.eye(len(theta)) - 1 / len(theta))
    damping = 1e-3

    def cost(theta: Floats) -> float:
        shares = np.exp(theta)
        return float(
            0.5 * shares @ hessian @ shares - linear @ shares + 0.5 * (theta - even) @ penalty @ (theta - even)
        )

    now = cost(theta)
    for _ in range(NEWTON_STEPS):
        shares = np.exp(theta)
        pull = hessian @ shares
        slope = pull - linear
        gradient = shares * (slope - shares @ slope) + penalty @ (theta - even)
        # T·H·T for the change T = diag(p) − ppᵀ of shares p by θ; adding a constant to θ changes nothing.
        turned = np.outer(shares, shares) * (hessian - pull[:, None] - pull + shares @ pull)
        curvature = turned + penalty + 1 / len(theta)
        while damping < 1e8:
            damped = curvature + damping * np.diag(np.diag(curvature) + 1e-3)
            step = np.clip(np.linalg.solve(damped, -gradient), -3.0, 3.0)
            moved = theta + step
            moved = moved - np.logaddexp.reduce(moved)
            then = cost(moved)
            if then <= now:
                break
            damping = max(4 * damping, 1e-4)
        else:
            break
        theta, gained, now = moved, now - then, then
        damping = max(0.3 * damping, 1e-8)
        if gained < GAIN:
            break
    return theta
