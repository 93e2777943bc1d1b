"""Data of your own: a function that returns four arrays. From Python here, or from this folder with

paceline train mlp --data own_data:rings --set options.hidden=32 --epochs 20
"""

import numpy as np

import paceline


def rings() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Points in three rings around the origin: (x_train, y_train, x_test, y_test)."""
    generator = np.random.default_rng(0)
    ring = generator.integers(0, 3, size=3000)
    angle = generator.uniform(0, 2 * np.pi, size=3000)
    radius = 1.0 + ring + generator.normal(0, 0.15, size=3000)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return points[:2400], ring[:2400], points[2400:], ring[2400:]


if __name__ == "__main__":
    run = paceline.train("mlp", data=rings, options={"hidden": 32}, epochs=20)
    print(
        f"{run.parameters} parameters, {run.train_s:.2f} s of training, test accuracy {100 * run.test_accuracy:.1f} %"
    )
