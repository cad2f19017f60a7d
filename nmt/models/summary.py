"""A model in a few lines: its parts, their parameters, what is shared."""

from torch import nn

from nmt.models.seq2seq import Seq2Seq


def count_parameters(module: nn.Module) -> int:
    """Return the number of parameters, shared ones counted once."""
    return sum(parameter.numel() for parameter in module.parameters())


def summarize(model: Seq2Seq) -> str:
    """Return a table of the parts of a model and their parameters, and the total."""
    decoder = model.decoder
    parts: dict[str, nn.Module] = {
        "source embedding": model.encoder.embedding,
        f"encoder ({model.encoder.rnn.__class__.__name__}, bidirectional)": model.encoder.rnn,
        "target embedding": decoder.embedding,
        f"decoder ({decoder.__class__.__name__}, {decoder.stack.first.__class__.__name__})": decoder,
        f"attention ({decoder.attention})": decoder.attention,
        f"readout ({decoder.readout.__class__.__name__})": decoder.readout,
        "output layer": model.output,
    }
    seen: set[int] = set()
    lines = []
    # A part's own parameters: those of the parts within it have lines of their own.
    inner = {id(p) for part in (decoder.embedding, decoder.attention, decoder.readout) for p in part.parameters()}
    for name, part in parts.items():
        held = {id(p): p.numel() for p in part.parameters() if part is not decoder or id(p) not in inner}
        own = sum(size for key, size in held.items() if key not in seen)
        shared = "  (shares weights)" if held.keys() & seen else ""
        seen |= held.keys()
        lines.append(f"  {name:<40}{own:>12,}{shared}")
    lines.append(f"  {'parameters':<40}{count_parameters(model):>12,}")
    return "\n".join(lines)
