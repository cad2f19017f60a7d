"""One model from several, its weights being the means of theirs.

    python scripts/average_weights.py RUN RUN [RUN ...] --output DIR

    w = 1/M sum_m w_m

The M models are checkpoints of one run, or runs that began with the same weights (`trainer.initialize_from`) and differ
in seed or settings: a model soup (Wortsman et al., 2022). The mean often translates better than each of them, and takes
the time of one model, while an ensemble takes the time of all. Models that began with different random weights have no
mean that translates; they are refused.

DIR becomes a checkpoint folder, which every command takes in place of a run.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from nmt.cli import Parser, user_errors
from nmt.config.schema import changes
from nmt.errors import UserError
from nmt.models.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from nmt.models.ensemble import check_together
from nmt.training.resuming import fixed_in_model

# Of all weights. It is 0.05 for models from different random weights, and 0.99 for two moments of one run.
LEAST_SIMILARITY = 0.5


def main() -> None:
    """Average the weights of checkpoints, and write a checkpoint."""
    with user_errors():
        options = build_parser().parse_args()
        if options.output.exists():
            raise UserError(f"--output {options.output} exists: give a new folder")
        if len(options.run) < 2:
            raise UserError("one model has no mean: give two runs or more")
        first, *others = members = [load_checkpoint(each) for each in options.run]
        for other in others:
            check_alike(first, other)
        average_(first.model, [other.model for other in others])
        step, longest = max(each.step for each in members), min(each.longest for each in members)
        save_checkpoint(options.output, first.model, first.config, first.tokenizers, step=step, longest=longest)
        print(f"the mean of {len(members)} models is written to {options.output}")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="+", metavar="RUN", help="run or checkpoint folder")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="the checkpoint folder to write")
    return parser


def check_alike(first: Checkpoint, other: Checkpoint) -> None:
    """Raise UserError unless two models have the same parts and subwords, and began with the same weights."""
    check_together(first, other)
    both = f"{first.folder} and {other.folder}"
    fixed = [each for each in changes(first.config, other.config) if each.startswith("model.") and fixed_in_model(each)]
    if fixed:
        raise UserError(f"{both} are different models, which have no mean: they differ in {', '.join(fixed)}")
    found = similarity(first.model, other.model)
    print(f"{both}: cosine similarity of the weights {found:.3f}")
    if found < LEAST_SIMILARITY:
        raise UserError(
            f"{both} did not begin with the same weights (their cosine similarity is {found:.3f}), so their mean "
            "translates nothing: train one with trainer.initialize_from the other, or translate with --ensemble"
        )


@torch.no_grad()
def similarity(first: nn.Module, other: nn.Module) -> float:
    """Return the cosine of the angle between all weights of two models of the same parts."""
    ours, theirs = (nn.utils.parameters_to_vector(model.parameters()).double() for model in (first, other))
    return float(torch.nn.functional.cosine_similarity(ours, theirs, dim=0))


@torch.no_grad()
def average_(model: nn.Module, others: Sequence[nn.Module]) -> None:
    """Set each weight of a model to the mean of its own and those of others of the same parts."""
    for mean, *rest in zip(model.parameters(), *(other.parameters() for other in others), strict=True):
        mean.copy_(torch.stack([mean, *rest]).double().mean(dim=0))


if __name__ == "__main__":
    main()
