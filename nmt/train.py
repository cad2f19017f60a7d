"""Train a translator: `python -m nmt.train [GROUP=NAME] [key.path=value ...]`."""

from nmt.cli import hydra_main
from nmt.config.schema import TrainConfig


@hydra_main("train", TrainConfig, distributed=True)
def main(config: TrainConfig) -> None:
    """Train as configured, then evaluate the best checkpoint on the test split."""
    from nmt.training.run import train  # imports torch, which takes seconds, only after the options are checked

    train(config, latest=True)


if __name__ == "__main__":
    main()
