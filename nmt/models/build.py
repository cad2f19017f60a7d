"""From configuration to model: the only place where the parts meet."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.attention.attention import AttentionMechanism
from nmt.attention.build import build_attention, check_attention
from nmt.attention.fixed import FixedContext
from nmt.attention.settings import Settings
from nmt.config.schema import AttentionConfig, ModelConfig
from nmt.errors import UserError
from nmt.models.cells import CELLS, LSTM, Cell
from nmt.models.decoder import Bahdanau, Conditional, Decoder, Gnmt, Luong
from nmt.models.embedding import Embedding
from nmt.models.encoder import Encoder
from nmt.models.readout import READOUTS, Attentional, Readout
from nmt.models.seq2seq import Seq2Seq
from nmt.models.stack import Stack
from nmt.text.tokenizer import PAD


def check_model(config: ModelConfig, *, joint: bool = True) -> None:
    """Check what can be known before any data is read.

    Raises:
        UserError: a part has no such name, or settings contradict each other.
    """
    attention = config.attention
    if config.hidden_size % 2:
        raise UserError(f"model.hidden_size={config.hidden_size} must be even: each encoder direction has half of it")
    check_attention(attention.score, attention.normalizer, attention.window, settings_of(config, Plan.of(config)))
    if config.decoder == "fixed_context":
        check_fixed_context(attention)
    if config.decoder == "gnmt" and config.num_layers < 2:
        raise UserError(
            "model=gnmt queries with its first layer and reads with the others: set model.num_layers=2 or more"
        )
    if config.self_attention_heads and config.hidden_size % config.self_attention_heads:
        raise UserError(
            f"model.self_attention_heads={config.self_attention_heads} does not divide model.hidden_size="
            f"{config.hidden_size}: choose a divisor"
        )
    if config.tied_embeddings == "all" and not joint:
        raise UserError(
            "model.tied_embeddings=all shares one embedding of both sides: set tokenizer.joint=true, or tie `target`"
        )


def check_fixed_context(attention: AttentionConfig) -> None:
    """Raise UserError where attention is configured for a model that has none."""
    usual = AttentionConfig()
    for name, value in vars(attention).items():
        if value != getattr(usual, name):
            raise UserError(
                f"model=fixed_context has no attention, so model.attention.{name}={value} means nothing: "
                "leave it out, or choose model=bahdanau"
            )


def check_used(config: ModelConfig) -> None:
    """Raise UserError where a decoder that is to be trained would ignore a setting: another model was meant."""
    if config.decoder == "luong" and config.readout != "linear":
        raise UserError(
            f"model=luong has a readout of its own, a linear layer and tanh, so model.readout={config.readout} means "
            "nothing: set model.readout=linear, or choose model=bahdanau"
        )
    if config.decoder != "luong" and not config.input_feeding:
        raise UserError(
            f"model.input_feeding=false means nothing to model={config.decoder}: leave it out, or choose model=luong"
        )


def build_model(config: ModelConfig, source_vocab: int, target_vocab: int, *, joint: bool) -> Seq2Seq:
    """Build and initialize a model for vocabularies of these sizes; `joint` says that they are one and the same.

    Raises:
        UserError: as `check_model`, or the attention's sizes do not fit.
    """
    check_model(config, joint=joint)
    plan = Plan.of(config)
    target = Embedding(target_vocab, config.embedding_size, plan.embedding_dropout)
    source = target
    if config.tied_embeddings != "all":
        source = Embedding(source_vocab, config.embedding_size, plan.embedding_dropout)
    encoder = Encoder(
        source,
        cell=config.cell,
        hidden_size=config.hidden_size,
        num_layers=config.num_layers,
        state_dropout=plan.state_dropout,
        self_attention_heads=config.self_attention_heads,
        fast=config.fast == "auto",
    )
    decoder = build_decoder(config, plan, target, encoder.final_size)
    output = nn.Linear(plan.feature_size, target_vocab)
    initialize(nn.ModuleList([encoder, decoder, output]))
    if config.tied_embeddings != "none":
        output.weight = target.weight
    return Seq2Seq(encoder, decoder, output)


@dataclass(frozen=True)
class Plan:
    """Sizes and rates that follow from the configuration."""

    state_size: int
    feature_size: int
    attention_size: int
    embedding_dropout: float
    state_dropout: float
    output_dropout: float

    @classmethod
    def of(cls, config: ModelConfig) -> "Plan":
        """Fill in the rates and sizes that were left to follow from others."""
        own_size = config.decoder == "luong" and config.tied_embeddings == "none"

        def rate(own: float | None) -> float:
            return config.dropout if own is None else own

        return cls(
            state_size=2 * (config.hidden_size // 2),
            feature_size=config.hidden_size if own_size else config.embedding_size,
            attention_size=config.attention.size or config.hidden_size,
            embedding_dropout=rate(config.embedding_dropout),
            state_dropout=rate(config.state_dropout),
            output_dropout=rate(config.output_dropout),
        )


def build_decoder(config: ModelConfig, plan: Plan, embedding: Embedding, final_size: int) -> Decoder:
    """Build the decoder of `config.decoder`."""
    kind = CELLS[config.cell]
    hidden, embedded, context = config.hidden_size, config.embedding_size, plan.state_size
    conditional, fast = config.decoder == "conditional", config.fast == "auto"
    first = kind(context if conditional else embedded, hidden)
    below = hidden + context if config.decoder == "gnmt" else hidden
    upper: list[Cell] = [kind(below, hidden) for _ in range(config.num_layers - 1)]
    stack = Stack(first, upper, plan.state_dropout)
    bridge = nn.Sequential(nn.Linear(final_size, first.state_size), nn.Tanh())
    shared = (embedding, bridge, stack, attention_of(config, plan), readout_of(config, plan))
    if conditional:
        return Conditional(*shared, proposal=kind(embedded, hidden), fast=fast)
    if config.decoder == "gnmt":
        return Gnmt(*shared, fast=fast)
    gates = first.gates * hidden
    if config.decoder in ("bahdanau", "fixed_context"):
        return Bahdanau(*shared, context=nn.Linear(context, gates, bias=False), fast=fast)
    feedback = nn.Linear(hidden, gates, bias=False) if config.input_feeding else None
    attentional = nn.Linear(context + hidden, hidden, bias=False)
    return Luong(*shared, attentional=attentional, feedback=feedback, fast=fast)


def attention_of(config: ModelConfig, plan: Plan) -> AttentionMechanism:
    """Build the attention between the decoder and the encoder's states."""
    if config.decoder == "fixed_context":
        return FixedContext()
    names = config.attention
    return build_attention(names.score, names.normalizer, names.window, settings_of(config, plan))


def settings_of(config: ModelConfig, plan: Plan) -> Settings:
    """Return what the attention is made from."""
    options = config.attention
    return Settings(
        query_size=config.hidden_size,
        state_size=plan.state_size,
        size=plan.attention_size,
        basis=options.basis,
        num_basis=options.num_basis,
        temperature=options.temperature,
        soft_share=options.soft_share,
        radius=options.radius,
        num_heads=options.num_heads,
        coverage=options.coverage,
        projection=options.projection,
    )


def readout_of(config: ModelConfig, plan: Plan) -> Readout:
    """Build the readout; Luong's attentional vector is its own."""
    if config.decoder == "luong":
        return Attentional(config.hidden_size, plan.feature_size, plan.output_dropout)
    readout = READOUTS[config.readout]
    return readout(config.hidden_size, plan.state_size, config.embedding_size, plan.feature_size, plan.output_dropout)


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
            orthogonal_blocks(parameter)
        else:
            nn.init.xavier_uniform_(parameter)
    for module in model.modules():
        open_forget_gates(module)
        if isinstance(module, nn.LayerNorm):
            module.reset_parameters()


def orthogonal_blocks(weight: Tensor) -> None:
    """Make each gate's square block of a recurrent matrix orthogonal (Saxe et al., 2014)."""
    for block in weight.split(weight.shape[1]):
        nn.init.orthogonal_(block)


def open_forget_gates(module: nn.Module) -> None:
    """Set the forget gate's bias of an LSTM to 1 (Jozefowicz et al., 2015)."""
    if isinstance(module, LSTM):
        biases = [module.inputs.bias]
    elif isinstance(module, nn.LSTM):
        biases = [parameter for name, parameter in module.named_parameters() if name.startswith("bias_ih")]
    else:
        return
    for bias in biases:
        _, forget, _, _ = bias.detach().chunk(4)
        forget.fill_(1.0)
