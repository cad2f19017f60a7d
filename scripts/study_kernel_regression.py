"""Attention as kernel regression: the Nadaraya-Watson estimate of a curve, computed by `Attention`.

    python scripts/study_kernel_regression.py [--quick] [--points N] [--bandwidths SIGMA ...]

Nadaraya (1964) and Watson (1964) estimate y at x by the mean of the known y_i, weighted by a kernel of x - x_i. That is
attention with queries x, keys x_i, values y_i and the gaussian score -(x - x_i)^2 / 2 sigma^2. Softmax yields the
Gaussian kernel of bandwidth sigma; sparsemax yields a parabola and entmax15 a squared parabola (the kernels of
Epanechnikov and of Tukey's biweight), whose width adapts to the density of the points.

The points are noisy values of sin(2x) + x/2. A small sigma overfits the noise, a large one smooths the curve away. The
learned sigma minimizes the leave-one-out squared error, by gradient descent.

Columns: that held-out error, the error against the true curve, the entropy of attention in nats, and the mean number of
points with a weight above 0. The figure shows the estimates, and under each the attention matrix. Takes seconds;
--quick takes fewer gradient steps.
"""

import argparse
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.attention.attention import Attention
from nmt.attention.normalizers import NORMALIZERS
from nmt.attention.scores import Gaussian
from nmt.attention.settings import AttentionSettings
from nmt.attention.windows import Global
from nmt.cli import user_errors
from nmt.config.schema import AttentionConfig
from nmt.errors import UserError
from studies.options import positive, positive_number, seed, use_threads
from studies.study import add_output, make_output_folder
from studies.tables import report

MAX_X = 6.0  # points lie between 0 and this
MAX_NOISE = 1_000
QUERIES = 240
LEARNED = ("softmax", "entmax15", "sparsemax")  # normalizers whose bandwidth is learned
STEPS, QUICK_STEPS, LEARNING_RATE = 300, 60, 0.05


class Points(NamedTuple):
    """Known values of a curve, from left to right."""

    x: Float[Tensor, " points"]
    y: Float[Tensor, " points"]


def main() -> None:
    """Estimate the curve with each bandwidth, and write the table and the figure."""
    options = build_parser().parse_args()
    with user_errors():
        if options.points < 3:
            raise UserError(f"--points {options.points} are too few to learn from: give at least 3")
        if options.noise > MAX_NOISE:
            raise UserError(f"--noise {options.noise:g} leaves nothing of the curve: give at most {MAX_NOISE:,}")
        use_threads(options.threads)
        points = draw_points(options.points, options.noise, options.seed)
        attentions = [attention_of("softmax", sigma) for sigma in options.bandwidths]
        folder = make_output_folder(options, "kernel_regression")
        learned = [attention_of(name, 1.0) for name in LEARNED]
        for attention in learned:
            learn(attention, points, QUICK_STEPS if options.quick else STEPS)
        rows = [measure(attention, points, learned=False) for attention in attentions]
        rows += [measure(attention, points, learned=True) for attention in learned]
        draw_all = partial(draw, rows, [*attentions, *learned], points)
        report(rows, draw_all, folder, title="kernel regression by attention")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"learn for {QUICK_STEPS} steps, not {STEPS}")
    parser.add_argument("--points", type=positive, default=60, metavar="N", help="known values (default: 60)")
    parser.add_argument(
        "--noise", type=positive_number, default=0.3, metavar="S", help="its standard deviation (default: 0.3)"
    )
    parser.add_argument(
        "--bandwidths",
        type=positive_number,
        nargs="+",
        default=[0.05, 0.2, 0.6, 2.0],
        metavar="SIGMA",
        help="fixed ones",
    )
    parser.add_argument("--seed", type=seed, default=1, help="of the points (default: 1)")
    add_output(parser)
    return parser


def curve(x: Float[Tensor, " points"]) -> Float[Tensor, " points"]:
    """Return the true curve, sin(2x) + x/2."""
    return torch.sin(2 * x) + x / 2


def draw_points(count: int, noise: float, seed: int) -> Points:
    """Return noisy values of the curve, one at a random place in each of `count` equal intervals."""
    generator = torch.Generator().manual_seed(seed)
    x = MAX_X * (torch.arange(count) + torch.rand(count, generator=generator)) / count
    return Points(x, curve(x) + noise * torch.randn(count, generator=generator))


def attention_of(normalizer: str, bandwidth: float) -> Attention:
    """Return attention between numbers by the gaussian score."""
    settings = AttentionSettings.from_config(AttentionConfig(temperature=1.0), query_size=1, state_size=1, size=1)
    score = Gaussian(settings)
    with torch.no_grad():
        score.log_bandwidth.add_(math.log(bandwidth) - score.bandwidth.log())
    return Attention(score, NORMALIZERS[normalizer](settings), Global(settings))


def bandwidth_of(attention: Attention) -> float:
    """Return sigma."""
    assert isinstance(attention.score, Gaussian)
    return attention.score.bandwidth.item()


def estimate(
    attention: Attention,
    queries: Float[Tensor, "batch target"],
    keys: Float[Tensor, "batch source"],
    values: Float[Tensor, "batch source"],
) -> tuple[Float[Tensor, "batch target"], Float[Tensor, "batch target source"]]:
    """Return the expected value at each query, and the weights of the known values."""
    memory = attention.project_memory(keys[:, :, None], torch.ones_like(keys, dtype=torch.bool))
    attended = attention(queries[:, :, None], memory._replace(values=values[:, :, None]))
    return attended.context[:, :, 0], attended.weights


def held_out_error(attention: Attention, points: Points) -> Float[Tensor, ""]:
    """Return the leave-one-out mean squared error: a batch of n memories of n - 1 points."""
    count = len(points.x)
    others = (torch.arange(count)[:, None] + torch.arange(1, count)) % count
    expected, _ = estimate(attention, points.x[:, None], points.x[others], points.y[others])
    return (expected[:, 0] - points.y).square().mean()


def learn(attention: Attention, points: Points, steps: int) -> None:
    """Minimize the held-out error over the bandwidth with Adam."""
    optimizer = torch.optim.Adam(attention.parameters(), lr=LEARNING_RATE)
    for _ in range(steps):
        optimizer.zero_grad()
        held_out_error(attention, points).backward()
        optimizer.step()


@torch.no_grad()
def measure(attention: Attention, points: Points, *, learned: bool) -> dict[str, Any]:
    """Return the row of an attention in the table."""
    queries = torch.linspace(0.0, MAX_X, QUERIES)
    expected, weights = estimate(attention, queries[None], points.x[None], points.y[None])
    return {
        "normalizer": type(attention.normalizer).__name__.lower(),
        "bandwidth": bandwidth_of(attention),
        "learned": "yes" if learned else "no",
        "held_out_error": held_out_error(attention, points).item(),
        "curve_error": (expected[0] - curve(queries)).square().mean().item(),
        "attention_entropy": torch.special.entr(weights).sum(dim=-1).mean().item(),
        "points_seen": (weights > 0).sum(dim=-1).float().mean().item(),
    }


@torch.no_grad()
def draw(rows: Sequence[dict[str, Any]], attentions: Sequence[Attention], points: Points, path: Path) -> None:
    """Draw a column for each attention: the estimate above, the attention matrix between the points below."""
    from matplotlib.figure import Figure

    queries = torch.linspace(0.0, MAX_X, QUERIES)
    figure = Figure(figsize=(2.3 * len(rows), 4.6), layout="constrained")
    panels = figure.subplots(2, len(rows), squeeze=False, sharey="row")
    for above, below, row, attention in zip(*panels, rows, attentions, strict=True):
        expected, _ = estimate(attention, queries[None], points.x[None], points.y[None])
        above.set_title(f"{row['normalizer']}, σ = {row['bandwidth']:.2g}", fontsize=9)
        above.scatter(points.x, points.y, s=8, color="0.6", label="known")
        above.plot(queries, curve(queries), color="0.4", linestyle="--", linewidth=1, label="true")
        above.plot(queries, expected[0], color="tab:blue", label="estimate")
        above.set_xlabel("learned σ" if row["learned"] == "yes" else "fixed σ", fontsize=8)
        _, weights = estimate(attention, points.x[None], points.x[None], points.y[None])
        below.imshow(weights[0], cmap="Blues", aspect="equal", interpolation="nearest")
        below.set_xlabel("key", fontsize=8)
    panels[0, 0].legend(fontsize=7)
    panels[1, 0].set_ylabel("query", fontsize=8)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
