"""Several heads: each an independent attention, on its slice of query, keys and values."""

import itertools

import pytest
import torch
from torch import nn

from nmt.attention.attention import Memory, MultiHead
from nmt.attention.build import build_attention
from nmt.attention.normalizers import NORMALIZERS
from nmt.attention.windows import WINDOWS
from nmt.config.schema import AttentionConfig, ModelConfig
from nmt.errors import UserError
from tests.attention.compositions import build, mask_of, random_memory, random_query, random_states, small
from tests.models.small import random_batch, small_model

SCORES = ["additive", "dot", "gaussian", "location:radial"]
VARIANTS = list(itertools.product(SCORES, NORMALIZERS, WINDOWS))
LENGTHS = [4, 7, 1]

every_variant = pytest.mark.parametrize("composition", VARIANTS, ids="-".join)
every_projection = pytest.mark.parametrize("projection", ["identity", "learned"])


def heads_of(attention):
    return list(attention.heads)


def share(size: int, head: int, heads: int) -> slice:
    return slice(head * size // heads, (head + 1) * size // heads)


@every_variant
@every_projection
def test_heads_equal_attentions_on_slices(composition, projection):
    """Everything by hand: cut the vectors, attend with each head, join the contexts."""
    attention = build(composition, projection=projection, num_heads=2)
    states, mask, query = random_states(LENGTHS), mask_of(LENGTHS), random_query(LENGTHS, 3)
    attended = attention(query, attention.project_memory(states, mask), 1)
    maps = [attention.query, attention.key, attention.value, attention.output]
    learned = projection == "learned"
    assert all(isinstance(part, nn.Linear if learned else nn.Identity) for part in maps)
    sizes = (4, 4, 6, 6) if learned else (6, 6, 6, 6)
    q, k, v = (x @ m.weight.T if learned else x for x, m in zip((query, states, states), maps[:3], strict=True))
    parts = []
    for index, head in enumerate(heads_of(attention)):
        own = [x[..., share(size, index, 2)] for x, size in zip((q, k, v), sizes[:3], strict=True)]
        parts.append(head(own[0], Memory(head.project_memory(own[1], mask).keys, own[2], mask), 1))
    context = torch.cat([part.context for part in parts], dim=-1)
    torch.testing.assert_close(attended.context, context @ maps[3].weight.T if learned else context)
    torch.testing.assert_close(attended.weights, (parts[0].weights + parts[1].weights) / 2)
    torch.testing.assert_close(attended.scores, (parts[0].scores + parts[1].scores) / 2)


def test_heads_differ_from_each_other():
    attention = build(("additive", "softmax", "global"), num_heads=2)
    first, second = heads_of(attention)
    assert not torch.equal(first.score.energy.weight, second.score.energy.weight)
    assert {first.score.query.in_features, first.score.query.out_features} == {3, 2}


@every_variant
@every_projection
def test_step_by_step_and_row_by_row_equal_all_at_once(composition, projection):
    attention = build(composition, projection=projection, num_heads=2)
    memory, query = random_memory(attention, LENGTHS), random_query(LENGTHS, 4)
    together = attention(query, memory, torch.arange(4)).context
    apart = [attention(query[:, t : t + 1], memory, position=t).context for t in range(4)]
    torch.testing.assert_close(together, torch.cat(apart, dim=1))
    rows = torch.tensor([2, 0])
    torch.testing.assert_close(attention(query[rows], memory.keep(rows), torch.arange(4)).context, together[rows])


@every_projection
@pytest.mark.parametrize("score", SCORES)
def test_gradients(score: str, projection: str):
    attention = build((score, "entmax15", "local_p"), projection=projection, num_heads=2)
    query, states = random_query([2, 4], 2).requires_grad_(), random_states([2, 4]).requires_grad_()

    def context(query, states, *_):
        return attention(query, attention.project_memory(states, mask_of([2, 4]))).context

    assert torch.autograd.gradcheck(context, (query, states, *attention.parameters()), fast_mode=True)


def test_draws_are_independent():
    """The log-probability of all heads' choices is the sum of theirs."""
    attention = build(("general", "hard", "global"), num_heads=2).train()
    attended = attention(random_query([1], 2), random_memory(attention, [1]))
    torch.testing.assert_close(attended.sampled.log_prob, torch.zeros(1, 2, dtype=torch.float64))
    attended = attention(random_query([5], 2), random_memory(attention, [5]))
    keys = random_memory(attention, [5])
    parts = [
        head(query, Memory(key, value, keys.mask))
        for head, query, key, value in zip(
            heads_of(attention),
            random_query([5], 2).chunk(2, -1),
            keys.keys.chunk(2, -1),
            keys.values.chunk(2, -1),
            strict=True,
        )
    ]
    torch.testing.assert_close(attended.sampled.entropy, parts[0].sampled.entropy + parts[1].sampled.entropy)
    assert (attended.sampled.log_prob < 0).all()


def test_a_learned_projection_makes_sizes_fit():
    attention = build_attention("dot", "softmax", "global", small(state_size=8, projection="learned")).double()
    assert isinstance(attention, MultiHead)
    memory = attention.project_memory(random_states([4, 2], size=8), mask_of([4, 2]))
    assert attention(random_query([4, 2], 3), memory).context.shape == (2, 3, 8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 4}, r"num_heads=4 does not divide the size of a query \(model.hidden_size\), 6"),
        ({"num_heads": 4, "projection": "learned"}, r"num_heads=4 does not divide the size of an encoder state .*, 6"),
        ({"num_heads": 3}, r"num_heads=3 does not divide model.attention.size \(default: model.hidden_size\), 4"),
    ],
)
def test_heads_that_do_not_divide_a_size_are_explained(changes, message):
    with pytest.raises(UserError, match=message):
        build_attention("additive", "softmax", "global", small(**changes))


@every_projection
def test_a_model_with_heads_decodes_and_learns(projection: str):
    """Teacher forcing equals decoding step by step, and every parameter has a gradient."""
    config = ModelConfig(
        embedding_size=6,
        hidden_size=8,
        attention=AttentionConfig(num_heads=2, projection=projection, window="local_p", radius=2),
    )
    model = small_model(decoder="luong")
    model.decoder.attention = model.decoder.build_attention(config, 8).double()
    batch = random_batch([(5, 4), (1, 7), (9, 1)])
    decoded = model(batch)
    state = model.start(batch.source, batch.source_mask, batch.source_lengths)
    for position, tokens in enumerate(batch.target_in.split(1, dim=1)):
        step = model.step(tokens, state)
        state = step.state
        torch.testing.assert_close(step.weights[:, 0], decoded.weights[:, position])
    decoded.features.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.decoder.attention.parameters())
    assert str(model.decoder.attention) == "2 heads of Additive x Softmax x LocalPredictive"
