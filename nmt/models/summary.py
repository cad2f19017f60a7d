"""A model in a few lines: its parts, their parameters, what is shared."""

from torch import nn

from nmt.models.seq2seq import Seq2Seq


def count_parameters(module: nn.Module) -> int:
    """Return the number of parameters, shared ones counted once."""
    return sum(parameter.numel() for parameter in module.parameters())


def summarize(model: Seq2Seq) -> str:
    """Return a table of the parts of a model and their parameters, and the total.

    A part that contains another listed part is counted without it; shared weights are counted where they come first.
    """
    decoder = model.decoder
    parts: dict[str, nn.Module] = {
        "source embedding": model.encoder.embedding,
        f"encoder ({model.encoder})": model.encoder,
        "target embedding": decoder.embedding,
        f"attention ({decoder.attention})": decoder.attention,
        f"readout ({type(decoder.readout).__name__})": decoder.readout,
        f"decoder ({decoder})": decoder,
        "output layer": model.output,
    }
    seen: set[int] = set()
    lines = []
    for name, part in parts.items():
        within = [other for other in parts.values() if other is not part and other in part.modules()]
        listed = {id(p) for other in within for p in other.parameters()}
        sizes = {id(p): p.numel() for p in part.parameters() if id(p) not in listed}
        own = sum(size for key, size in sizes.items() if key not in seen)
        shared = "  (shares weights)" if sizes.keys() & seen else ""
        seen |= sizes.keys()
        lines.append(f"  {name:<40}{own:>12,}{shared}")
    lines.append(f"  {'parameters':<40}{count_parameters(model):>12,}")
    return "\n".join(lines)
