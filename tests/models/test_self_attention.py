"""Self-attention on top of the encoder."""

import torch

from nmt.models.layers import SelfAttention


def test_equals_the_formula_and_leaves_padding_out():
    torch.manual_seed(0)
    layer = SelfAttention(4, 2, dropout=0.0).double()
    states = torch.randn(2, 3, 4, dtype=torch.float64)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    found = layer(states, mask)
    weight, bias = layer.attention.in_proj_weight, layer.attention.in_proj_bias
    for row, length in ((0, 3), (1, 2)):
        normed = layer.norm(states[row, :length])
        query, key, value = (normed @ weight.T + bias).chunk(3, dim=-1)
        heads = []
        for head in (slice(0, 2), slice(2, 4)):
            weights = (query[:, head] @ key[:, head].T / 2**0.5).softmax(dim=-1)
            heads.append(weights @ value[:, head])
        expected = states[row, :length] + layer.attention.out_proj(torch.cat(heads, dim=-1))
        torch.testing.assert_close(found[row, :length], expected)
