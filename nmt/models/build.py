"""From configuration to model: the only place where the parts meet."""

import math

import torch
from torch import nn

from nmt.config.schema import ModelConfig
from nmt.errors import UserError, unknown
from nmt.models.decoder import DECODERS
from nmt.models.encoder import ENCODERS
from nmt.models.layers import LSTM, Embedding
from nmt.models.seq2seq import Seq2Seq
from nmt.text.tokenizer import PAD


def check_model(config: ModelConfig, *, joint: bool = True) -> None:
    """Raise UserError, before any data is read, for an unknown part, or settings that contradict each other."""
    if config.encoder not in ENCODERS:
        raise unknown("model.encoder", config.encoder, ENCODERS)
    if config.decoder not in DECODERS:
        raise unknown("model.decoder", config.decoder, DECODERS)
    encoder = ENCODERS[config.encoder]
    encoder.check(config)
    DECODERS[config.decoder].check(config, encoder)
    if config.tied_embeddings == "all" and not joint:
        raise UserError(
            "model.tied_embeddings=all shares one embedding of both sides: set tokenizer.joint=true, or tie `target`"
        )


def build_model(config: ModelConfig, source_vocab: int, target_vocab: int, *, joint: bool) -> Seq2Seq:
    """Build and initialize a model for vocabularies of these sizes, where `joint` says that they are one and the same;
    raise UserError as `check_model`.
    """
    check_model(config, joint=joint)
    target = build_embedding(config, target_vocab)
    source = target if config.tied_embeddings == "all" else build_embedding(config, source_vocab)
    encoder = ENCODERS[config.encoder](config, source)
    decoder = DECODERS[config.decoder](config, target, encoder)
    output = nn.Linear(decoder.readout.size, target_vocab)
    initialize(nn.ModuleList([encoder, decoder, output]))
    if config.tied_embeddings != "none":
        output.weight = target.weight
    return Seq2Seq(encoder, decoder, output)


def build_embedding(config: ModelConfig, vocab_size: int) -> Embedding:
    rate, words = config.dropout_rate("embedding"), config.word_dropout
    return Embedding(vocab_size, config.embedding_size, rate, word_dropout=words, locked=config.locked_dropout)


def initialize(model: nn.Module) -> None:
    """Orthogonal recurrent matrices, Glorot elsewhere, N(0, 1/d) embeddings, zero biases; LSTM forget biases are 1."""
    for name, parameter in model.named_parameters():
        if "embedding" in name:
            nn.init.normal_(parameter, std=1.0 / math.sqrt(parameter.shape[1]))
            with torch.no_grad():
                parameter[PAD].zero_()
        elif parameter.dim() < 2:
            nn.init.zeros_(parameter)
        elif "weight_hh" in name or "recurrent" in name:
            for gate in parameter.split(parameter.shape[1]):  # each has a square block (Saxe et al., 2014)
                nn.init.orthogonal_(gate)
        else:
            nn.init.xavier_uniform_(parameter)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.reset_parameters()
        elif isinstance(module, LSTM | nn.LSTM):
            biases = [each for name, each in module.named_parameters() if name.startswith(("inputs.bias", "bias_ih"))]
            for bias in biases:
                _, forget, _, _ = bias.detach().chunk(4)
                forget.fill_(1.0)  # so that states are kept at first  (Jozefowicz et al., 2015)
