"""The speed of model.fast=auto and off: training and search, measured in turn."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarking.training import timed_updates
from benchmarking.translation import timed_translation
from benchmarking.workload import start_training, translator_of
from nmt.config.schema import TrainConfig
from nmt.training.prepare import TrainingData

PATHS = ("auto", "off")  # values of model.fast


def measure_fast_path(
    configs: Mapping[str, TrainConfig], prepared: TrainingData, sentences: Sequence[str], *, updates: int, rounds: int
) -> Iterator[dict[str, float]]:
    """Yield the rates of each round: training in target tokens/s, search in sentences/s, by the value of model.fast.

    Args:
        configs: a configuration for each of `PATHS`.
        prepared: the training corpus; both models see the same batches.
        sentences: both models translate them, with the same weights.
        updates: updates in a round.
        rounds: the number of measurements, after one to warm up.
    """
    trainers = {fast: start_training(config, prepared) for fast, config in configs.items()}
    streams = {fast: timed_updates(trainer, updates) for fast, trainer in trainers.items()}
    training = in_turn(lambda fast: next(streams[fast]).target_tokens_per_second, rounds)

    weights = trainers["auto"].model.state_dict()
    translators = {fast: translator_of(config, prepared.tokenizers, weights) for fast, config in configs.items()}
    search = in_turn(lambda fast: len(sentences) / timed_translation(translators[fast], sentences)[0], rounds)
    for trained, searched in zip(training, search, strict=True):
        rates = {f"training_{fast}": trained[fast] for fast in PATHS}
        yield rates | {f"search_{fast}": searched[fast] for fast in PATHS}


def in_turn(measure: Callable[[str], float], rounds: int) -> list[dict[str, float]]:
    """Measure each of `PATHS` in every round, in alternating order, after one round to warm up."""
    orders = (PATHS if number % 2 else PATHS[::-1] for number in range(1 + rounds))
    return [{fast: measure(fast) for fast in order} for order in orders][1:]
