"""Score a trained run: `python -m nmt.evaluate checkpoint=RUN [split=validation] [key.path=value ...]`."""

from nmt.cli import hydra_main, swept_overrides
from nmt.config.schema import EvaluateConfig


@hydra_main("evaluate", EvaluateConfig)
def main(config: EvaluateConfig) -> None:
    """Translate and score a split, print a table and write `evaluation/<split>/` in the run."""
    from nmt.evaluation.run import evaluate  # imports torch, which takes seconds, only after the options are checked

    evaluate(config, swept_overrides())


if __name__ == "__main__":
    main()
