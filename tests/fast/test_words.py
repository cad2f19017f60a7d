"""Words that share the products of their embeddings."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from nmt.fast.words import DistinctWords, distinct_words
from nmt.models.layers import Embedding
from nmt.text.tokenizer import PAD

VOCAB = 7


def words(dropout: float = 0.0) -> Embedding:
    torch.manual_seed(0)
    embedding = Embedding(VOCAB, 4, dropout).double()
    nn.init.normal_(embedding.weight)
    return embedding


@given(rows=st.integers(1, 4), columns=st.integers(1, 5), seed=st.integers(0, 99))
def test_words_that_share_a_vector_are_as_each_by_itself(rows: int, columns: int, seed: int):
    """In values, and in the gradients of the table and of what is applied to it; padding has none."""
    embedding, linear = words(), nn.Linear(4, 3).double()
    tokens = torch.randint(PAD, VOCAB, (columns, rows), generator=torch.Generator().manual_seed(seed)).t()
    shared = distinct_words(embedding, tokens)
    assert shared is not None
    assert len(shared.tokens) == len(set(tokens.flatten().tolist()))
    found = shared.spread(linear(embedding(shared.tokens)), torch.float64)
    expected = linear(embedding(tokens))
    assert torch.equal(found, expected)
    for one, other in zip(*(derivatives(x, embedding, linear) for x in (found, expected)), strict=True):
        torch.testing.assert_close(one, other)


def derivatives(x: torch.Tensor, embedding: Embedding, linear: nn.Linear) -> tuple[torch.Tensor, ...]:
    weights = torch.arange(1.0, x.numel() + 1, dtype=torch.float64).view_as(x)  # no two places alike
    return torch.autograd.grad((x * weights).sum(), [embedding.weight, *linear.parameters()])


def test_dropout_tells_words_apart():
    embedding, tokens = words(dropout=0.5), torch.full((2, 50), 3)
    assert distinct_words(embedding, tokens) is None
    shared = distinct_words(embedding.eval(), tokens)
    assert shared is not None
    assert shared.tokens.tolist() == [3]


def test_gradients_of_a_common_word_add_up_precisely():
    """1,024 ones are 256 in bf16, which has 8 bits."""
    linear = nn.Linear(4, 3)
    shared = DistinctWords(torch.zeros(1, dtype=torch.long), torch.zeros(1024, dtype=torch.long))
    with torch.autocast("cpu", torch.bfloat16):
        shared.spread(linear(torch.ones(1, 4)), torch.float32).sum().backward()
    assert linear.bias.grad.tolist() == [1024.0] * 3
