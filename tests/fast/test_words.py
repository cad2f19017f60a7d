"""Words that share the products of their embeddings."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from nmt.fast.words import distinct_words, read_words
from nmt.models.layers import Embedding
from nmt.text.tokenizer import PAD
from tests.models.small import small_model

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
    distinct, places = shared
    assert len(distinct) == len(set(tokens.flatten().tolist()))
    found = nn.functional.embedding(places, linear(embedding(distinct)))
    expected = linear(embedding(tokens))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)  # by a product of other numbers of rows
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
    assert shared[0].tolist() == [3]


def test_gradients_of_a_common_word_add_up_precisely():
    """1,024 ones are 256 in bf16, which has 8 bits."""
    decoder = small_model(decoder="luong").float().decoder.eval()
    nn.init.zeros_(decoder.embedding.weight)
    first = decoder.stack.first.inputs
    with torch.autocast("cpu", torch.bfloat16):
        read_words(decoder, torch.full((1024, 1), 3)).gates.sum().backward()
    assert first.bias.grad.tolist() == [1024.0] * len(first.bias)
