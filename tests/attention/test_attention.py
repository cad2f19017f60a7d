"""Properties of every composition score x normalizer x window."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.attention.attention import Attention
from nmt.attention.build import build_attention
from nmt.attention.scores import SCORES
from nmt.attention.windows import LocalPredictive
from nmt.config.check import check
from nmt.config.schema import AttentionConfig, ModelConfig, TrainConfig
from nmt.errors import UserError
from nmt.models.build import check_model
from tests.attention.compositions import (
    COMPOSITIONS,
    build,
    mask_of,
    random_memory,
    random_query,
    random_states,
    seen,
    small,
)

every_composition = pytest.mark.parametrize("composition", COMPOSITIONS, ids="-".join)
LENGTHS = [4, 7, 1]


@every_composition
@settings(max_examples=8)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=3), targets=st.integers(1, 4))
def test_weights_are_on_the_simplex_and_zero_on_padding_and_outside_the_window(composition, lengths, targets):
    attention = build(composition)
    memory, query, step = random_memory(attention, lengths), random_query(lengths, targets), torch.arange(targets)
    attended = attention(query, memory, step)
    weights, support = attended.weights, seen(attention.window, query, lengths, step)
    assert (weights >= 0).all()
    assert (weights[~support] == 0).all()
    assert (weights[~memory.mask[:, None].expand_as(weights)] == 0).all()
    if isinstance(attention.window, LocalPredictive):
        _, taper = attention.window(query, memory.mask, step)
        assert (weights.sum(-1) <= 1 + 1e-12).all()
        weights = weights / taper.where(support, torch.ones(()).double())
    torch.testing.assert_close(weights.sum(-1), torch.ones(len(lengths), targets, dtype=torch.float64))
    torch.testing.assert_close(attended.context, attended.weights @ memory.values)


@every_composition
def test_weights_are_those_of_the_visible_tokens_alone(composition):
    """As if the sentence consisted of the window's tokens alone: no others take part in the normalization."""
    attention = build(composition)
    memory, query = random_memory(attention, LENGTHS), random_query(LENGTHS, 3)
    step = torch.arange(3)
    attended, support = attention(query, memory, step), seen(attention.window, query, LENGTHS, step)
    _, taper = attention.window(query, memory.mask, step)
    for b, t in torch.cartesian_prod(torch.arange(3), torch.arange(3)).tolist():
        visible = support[b, t]
        alone = attention.normalizer(attended.scores[b : b + 1, t : t + 1, visible])[0, 0]
        expected = alone if taper is None else alone * taper[b, t, visible]
        torch.testing.assert_close(attended.weights[b, t, visible], expected)


@every_composition
def test_padding_never_reaches_the_context(composition):
    attention = build(composition)
    states, mask, query = random_states([3, 5]), mask_of([3, 5]), random_query([3, 5], 2)
    clean = attention(query, attention.project_memory(states, mask))
    states[0, 3:] = 1e6
    dirty = attention(query, attention.project_memory(states, mask))
    torch.testing.assert_close(clean.context, dirty.context, rtol=0, atol=0)


@every_composition
def test_step_by_step_equals_all_at_once(composition):
    attention = build(composition)
    memory, query = random_memory(attention, LENGTHS), random_query(LENGTHS, 9)
    together = attention(query, memory, torch.arange(9))
    apart = [attention(query[:, t : t + 1], memory, position=t) for t in range(9)]
    torch.testing.assert_close(together.context, torch.cat([part.context for part in apart], dim=1))
    torch.testing.assert_close(together.weights, torch.cat([part.weights for part in apart], dim=1))


@every_composition
def test_hypotheses_of_a_beam_are_at_the_same_step(composition):
    attention = build(composition)
    memory, query = random_memory(attention, LENGTHS), random_query(LENGTHS, 3)
    together = attention(query, memory, 2).context
    apart = [attention(query[:, beam : beam + 1], memory, 2).context for beam in range(3)]
    torch.testing.assert_close(together, torch.cat(apart, dim=1))


@every_composition
def test_sentences_do_not_see_each_other(composition):
    """Neither the order of a batch nor its padding matters."""
    attention = build(composition)
    memory, query = random_memory(attention, LENGTHS), random_query(LENGTHS, 3)
    together, order = attention(query, memory, 1), torch.tensor([2, 0, 1])
    swapped = attention(query[order], memory.keep(order), 1)
    torch.testing.assert_close(swapped.context, together.context[order])
    torch.testing.assert_close(swapped.weights, together.weights[order])
    states = random_states(LENGTHS)
    for row, length in enumerate(LENGTHS):
        alone = attention.project_memory(states[row : row + 1, :length], mask_of([length]))
        torch.testing.assert_close(attention(query[row : row + 1], alone, 1).context, together.context[row : row + 1])


@every_composition
def test_gradients(composition):
    """Of queries, states and all parameters, in double precision."""
    attention = build(composition)
    query = random_query([2, 4], 2).requires_grad_()
    states = random_states([2, 4]).requires_grad_()

    def context(query, states, *_):
        return attention(query, attention.project_memory(states, mask_of([2, 4])), torch.arange(2)).context

    assert torch.autograd.gradcheck(context, (query, states, *attention.parameters()), fast_mode=True)


@every_composition
def test_finite_at_any_length(composition):
    """In single precision, with large queries, and backwards."""
    attention = build(composition).float().train()
    for length in (1, 2, 50, 200):
        states = random_states([length, 1]).float().requires_grad_()
        query = (30 * random_query([length, 1], 3)).float().requires_grad_()
        attended = attention(query, attention.project_memory(states, mask_of([length, 1])), torch.tensor([0, 1, 300]))
        parts = (attended.context, attended.weights, attended.scores, *attended.sampled)
        assert all(part.isfinite().all() for part in parts if part is not None)
        sums = [part.sum() for part in (attended.context, *attended.sampled) if part is not None]
        for gradient in torch.autograd.grad(sum(sums), (query, states, *attention.parameters()), allow_unused=True):
            assert gradient is None or gradient.isfinite().all()


@pytest.mark.parametrize("window", ["global", "local_m", "local_p"])
def test_what_is_drawn_can_be_learned_from(window: str):
    """log_prob and entropy are there while training with `hard`, with gradients that reach the score."""
    attention = build(("general", "hard", window)).train()
    memory, query = random_memory(attention, LENGTHS), random_query(LENGTHS, 3)
    attended = attention(query, memory)
    drawn = (attended.weights > 0).double().argmax(-1, keepdim=True)
    support = seen(attention.window, query, LENGTHS, torch.zeros(3))
    allowed = attended.scores.where(support, torch.full((), -torch.inf, dtype=torch.float64))
    expected = (allowed / 0.7).log_softmax(-1).gather(-1, drawn)[..., 0]
    torch.testing.assert_close(attended.sampled.log_prob, expected)
    for sought in (attended.sampled.log_prob, attended.sampled.entropy):
        (gradient,) = torch.autograd.grad(sought.sum(), attention.score.key.weight, retain_graph=True)
        assert gradient.abs().max() > 0
    assert attention.eval()(query, memory).sampled.log_prob is None
    assert build(("general", "softmax", window)).train()(query, memory).sampled.log_prob is None


def test_one_head_without_projections_has_the_parameters_of_its_parts():
    """Old checkpoints load: names as they were before there were heads."""
    attention = build_attention("additive", "softmax", "global", small(temperature=1.0))
    assert isinstance(attention, Attention)
    assert list(attention.state_dict()) == [
        "score.query.weight",
        "score.key.weight",
        "score.key.bias",
        "score.energy.weight",
    ]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("addtive", "softmax", "global"),
            r"unknown model.attention.score 'addtive': choose one of additive, .*did you mean 'additive'",
        ),
        (("dot", "softmx", "global"), r"unknown model.attention.normalizer 'softmx'.*did you mean 'softmax'"),
        (("dot", "softmax", "globl"), r"unknown model.attention.window 'globl'.*did you mean 'global'"),
    ],
)
def test_unknown_names_are_explained(names, message):
    with pytest.raises(UserError, match=message):
        build_attention(names[0], names[1], names[2], small())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"basis": "cannonical"}, "unknown model.attention.basis 'cannonical'.*did you mean 'canonical'"),
        ({"projection": "learnt"}, "unknown model.attention.projection 'learnt'.*did you mean 'learned'"),
        ({"radius": 0}, "model.attention.radius=0 is out of range: it must be at least 1"),
        ({"temperature": 0.0}, "model.attention.temperature=0.0 is out of range: it must be above 0"),
        ({"temperature": -1.0}, "model.attention.temperature=-1.0 is out of range"),
        ({"num_basis": 0}, "model.attention.num_basis=0 is out of range"),
        ({"num_heads": 0}, "model.attention.num_heads=0 is out of range"),
        ({"num_heads": 3}, r"num_heads=3 does not divide .*\(model.hidden_size\), 512: choose a divisor"),
        ({"num_heads": 8, "size": 12}, r"num_heads=8 does not divide model.attention.size .*, 12: choose a divisor"),
    ],
)
def test_options_that_cannot_work_are_explained_before_any_work(options, message):
    config = TrainConfig(model=ModelConfig(attention=AttentionConfig(**options)))

    def check_all() -> None:
        check(config)
        check_model(config.model)

    with pytest.raises(UserError, match=message):
        check_all()


@pytest.mark.parametrize("score", SCORES)
def test_every_score_can_be_configured(score: str):
    for normalizer, window in (("softmax", "local_m"), ("sparsemax", "local_p"), ("entmax15", "global")):
        names = AttentionConfig(score=score, normalizer=normalizer, window=window)
        check(TrainConfig(model=ModelConfig(attention=names)))
        check_model(ModelConfig(attention=names))
