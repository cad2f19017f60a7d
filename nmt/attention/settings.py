"""Sizes and options that the parts of attention are built from."""

from dataclasses import dataclass, fields, replace

from nmt.errors import UserError

SIZE_NAMES = {
    "query_size": "the size of a query (model.hidden_size)",
    "state_size": "the size of an encoder state (model.hidden_size)",
    "size": "model.attention.size (default: model.hidden_size)",
}


@dataclass(frozen=True, kw_only=True)
class AttentionSettings:
    """Sizes and options; each part reads those it needs. Defaults are defined in the configuration only.

    Attributes:
        query_size: size of a query.
        state_size: size of an encoder state.
        size: inner size of additive and concat scores, of local_p's predictor, and of learned projections.
        basis: `location`'s basis functions of the position, a key of `BASES`.
        num_basis: how many of them.
        temperature: T > 0 of the normalizers, p = argmax <p, s> - T Omega(p); None for the normalizer's own default.
        soft_share: share of queries, in [0, 1), whose weights `hard` does not sample in training but takes as softmax.
        radius: D of the local windows, in source tokens, at least 1.
        num_heads: number of heads, which divide the sizes among them.
        coverage: input of an additive score: `none`, `accumulated` or `fertility`.
        projection: of queries, keys and values, before the heads: `identity` or `learned`.
    """

    query_size: int
    state_size: int
    size: int
    basis: str
    num_basis: int
    temperature: float | None
    soft_share: float
    radius: int
    num_heads: int
    coverage: str
    projection: str

    @classmethod
    def from_config(cls, config: object, **sizes: int) -> "AttentionSettings":
        """Join the three sizes with the options of an `AttentionConfig`, or of any object with these attributes."""
        options = {field.name: getattr(config, field.name) for field in fields(cls) if field.name not in sizes}
        return cls(**{**options, **sizes})

    def per_head(self) -> "AttentionSettings":
        """Return the settings of one head: sizes divided by the number of heads, and no projections of its own.

        Raises:
            UserError: the number of heads does not divide a size.
        """
        heads, learned = self.num_heads, self.projection == "learned"
        for name, label in SIZE_NAMES.items():
            size = getattr(self, name)
            if size % heads and not (learned and name == "query_size"):
                wrong = f"model.attention.num_heads={heads} does not divide {label}, {size}"
                raise UserError(f"{wrong}: choose a divisor, or change the size")
        return replace(
            self,
            query_size=(self.size if learned else self.query_size) // heads,
            state_size=(self.size if learned else self.state_size) // heads,
            size=self.size // heads,
            num_heads=1,
            projection="identity",
        )
