"""A run of seconds that is done to its end once, as what every run that is killed or damaged must become."""

import pytest

from tests.chaos.whole import Whole, weights
from tests.processes import Zygote

OPTIONS = (
    "model.embedding_size=8",
    "model.hidden_size=16",
    "trainer.max_steps=12",
    "trainer.validate_every_steps=2",
    "trainer.log_every=3",
    "trainer.num_samples=1",
    "trainer.evaluate=false",
)


@pytest.fixture(scope="session")
def whole(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory, tiny_options: list[str]) -> Whole:
    place = tmp_path_factory.mktemp("whole")
    options = [*tiny_options, f"data.cache_dir={place / 'cache'}", *OPTIONS]
    done = zygote.run("train", "run_dir=run", *options, cwd=place, part="run/checkpoints")
    assert done.status == 0, done.errors
    return Whole(options, place / "run", weights(place / "run"))
