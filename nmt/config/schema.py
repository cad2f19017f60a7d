"""Every key of the configuration: its type, default, bounds and meaning, in one place.

YAML files under `configs/` hold only what differs from these defaults. Hydra merges them into the dataclasses
below, so an unknown key or a wrong type fails at composition; `nmt.config.check` then checks choices and bounds.
Below the entry points only these dataclasses (or plain arguments) are passed on, never an OmegaConf object.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

UNITS = ("tokens", "sentences")  # of a batch size
PRECISIONS = ("fp32", "bf16", "int8")  # of translation
WORDS = ("split", "spaces")  # of translations
LARGEST_SEED = 2**63 - 1  # that all random generators accept
LARGEST_BEAM = 10_000  # hypotheses of a sentence; with more a search would hardly end
LARGEST_INTEGER = 2**31 - 1  # of keys that do not say otherwise: libraries fail at larger ones, each in its own way
BLEU_TOKENIZERS = ("13a", "none", "intl", "char", "zh", "ja-mecab", "ko-mecab", "flores200")


def key(
    default: Any,
    help: str,
    *,
    choices: tuple[str, ...] = (),
    length: int | None = None,
    automatic: bool = False,
    **bounds: float,
) -> Any:
    """A dataclass field with its help, choices and bounds (at_least, above, below, at_most; of a list, on its elements).

    The value of an `automatic` one that is not given follows from the corpus and the time (`nmt.config.automatic`).
    """
    limits = {name.replace("_", " "): bound for name, bound in bounds.items()}
    metadata = {"help": help, "choices": choices, "bounds": limits, "length": length, "automatic": automatic}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def override(config: type, name: str) -> Any:
    """A field that overrides a key of another dataclass, within the same bounds; null keeps the value of that one."""
    (metadata,) = (member.metadata for member in dataclasses.fields(config) if member.name == name)
    return field(default=None, metadata=metadata)


@dataclass(kw_only=True)
class SplitConfig:
    """Where one split of a parallel corpus is."""

    source: Any = key(None, "file, or list of files, of source sentences, one per line (.gz is read too)")
    target: Any = key(None, "file, or list of files, of target sentences, in step with `source`")
    alignment: Any = key(None, "file, or list of files, of gold word alignments: Pharaoh, `0-0 1-2`; `1?2` is possible only; they count the parts between white space of any kind (no-break spaces too), in segmented text its pieces")
    name: str | None = key(None, "name of the split in a hub corpus, e.g. `train` or `train[:1000]`")

    def files(self, column: str) -> list[Any]:
        """Return the files of `source`, `target` or `alignment`: none, one or several."""
        value = getattr(self, column)
        return list(value) if isinstance(value, list | tuple) else [value] if value else []


@dataclass(kw_only=True)
class GrammarConfig:
    """The built-in English-French corpus (`data=grammar`)."""

    train_size: int = key(20_000, "training pairs", at_least=1)
    validation_size: int = key(500, "validation pairs", at_least=1)
    test_size: int = key(1_000, "test pairs", at_least=1)
    long_size: int = key(300, "pairs of the extra test split that holds only long sentences", at_least=1)
    min_length: int = key(3, "shortest source sentence, in words", at_least=3)
    max_length: int = key(60, "longest source sentence, in words", at_most=60)
    long_length: int = key(40, "shortest source sentence of the long split, in words", at_least=3)
    seed: int = key(1, "seed of the generator, apart from `seed`: all runs have the same corpus", at_least=0, at_most=LARGEST_SEED)


@dataclass(kw_only=True)
class HubConfig:
    """A corpus of the Hugging Face hub, or anything else that `datasets.load_dataset` reads (`data=hub`)."""

    path: str | None = key(None, "repository of the data set, or a local builder such as `json`, `csv`, `parquet`")
    name: str | None = key(None, "configuration of the data set, e.g. `de-en`")
    revision: str | None = key(None, "branch, tag or commit of the repository")
    data_files: Any = key(None, "files for a local builder: a mapping from split name to path(s)")
    source_column: str | None = key(None, "column of source sentences (default: the source language's code)")
    target_column: str | None = key(None, "column of target sentences (default: the target language's code)")
    translation_column: str = key("translation", "column that holds both languages as a mapping, if the corpus has one")


@dataclass(kw_only=True)
class CleaningConfig:
    """Which training and validation pairs are dropped, by length in words; test splits are never cleaned."""

    max_length: int = key(200, "drop a pair with a side longer than this many words", at_least=1)
    max_ratio: float = key(9.0, "drop a pair whose longer side has more than this many times the other's words, plus 5", at_least=1)


@dataclass(kw_only=True)
class DataConfig:
    """Parallel text."""

    kind: str = key("grammar", "where sentences come from: grammar, text, hub")
    source_language: str = key("en", "code of the source language")
    target_language: str = key("fr", "code of the target language")
    train: SplitConfig = field(default_factory=SplitConfig)
    validation: SplitConfig = field(default_factory=SplitConfig)
    test: SplitConfig = field(default_factory=SplitConfig)
    grammar: GrammarConfig = field(default_factory=GrammarConfig)
    hub: HubConfig = field(default_factory=HubConfig)
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)
    cache_dir: str = key("data/cache", "folder of corpora and of their subword ids, named by their content")
    max_gzip_ratio: float = key(100.0, "a gzipped file may not become more than this many times as large", at_least=1)
    num_workers: int = key(2, "processes that encode the corpus, of each rank", at_least=1)

    @property
    def direction(self) -> str:
        """The languages, as a person would write them."""
        return f"{self.source_language} to {self.target_language}"


@dataclass(kw_only=True)
class TokenizerConfig:
    """Subwords by sentencepiece, learned from the training text in the run; or the pieces of segmented text."""

    kind: str = key("unigram", "segmentation model; `whitespace`: the text is segmented already, with or without `@@` or U+2581 marks", choices=("unigram", "bpe", "whitespace"))
    vocab_size: int = key(8_000, "pieces, including special tokens; lowered with a warning where the text has too few", at_least=300, automatic=True)
    joint: bool = key(True, "one vocabulary for both sides")
    character_coverage: float = key(1.0, "share of characters that get a piece of their own; the rest become bytes", at_least=0.98, at_most=1)
    normalization: str = key("nmt_nfkc", "text normalization before segmentation: those of sentencepiece; `spaces`: white space becomes a space, and all else stays as it is", choices=("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "spaces", "identity"), automatic=True)
    sampling: float = key(0.0, "training-time subword regularization: BPE-dropout probability, or unigram smoothing alpha; 0 is off", at_least=0, at_most=1)
    learning_pairs: int = key(200_000, "learn from so many pairs, of a larger text drawn at random; a unigram model takes 6 KiB a pair of 26 words", at_least=1)
    source_model: str | None = key(None, "a sentencepiece model (`whitespace`: a list of pieces, one per line) to use for the source instead of learning one")
    target_model: str | None = key(None, "a sentencepiece model (`whitespace`: a list of pieces, one per line) to use for the target instead of learning one")


@dataclass(kw_only=True)
class BatchConfig:
    """How sentences are grouped."""

    unit: str = key("tokens", "what `size` counts: target tokens, including padding, or sentences", choices=UNITS)
    size: int = key(4_096, "size of a training batch; with several processes (`torchrun`), that of each", at_least=1, automatic=True)
    max_length: int = key(250, "leave out training pairs with a side of more subwords than this (as segmented without `tokenizer.sampling`)", at_least=1)
    window: int = key(100_000, "number of pairs per window: subwords are sampled and batches planned one window at a time; a window consists of random blocks of neighboring pairs, each a hundredth of its size", at_least=1)


@dataclass(kw_only=True)
class AttentionConfig:
    """Attention as score x normalizer x window; the names are those of the registries in `nmt/attention`."""

    score: str = key("additive", "how well a query matches each key: additive, concat, dot, scaled_dot, general, linear, cosine, gaussian, location")
    normalizer: str = key("softmax", "how scores become weights: softmax, sparsemax, entmax15, hard")
    window: str = key("global", "which source positions may be seen: global, local_m, local_p")
    size: int | None = key(None, "inner size of additive and concat scores, of local_p, and of learned projections (default: `model.hidden_size`)", at_least=1)
    basis: str = key("canonical", "`location`: a score for each position, or radial functions of the relative position", choices=("canonical", "radial"))
    num_basis: int = key(64, "`location`: basis functions; canonical: further positions share the last", at_least=1)
    temperature: float | None = key(None, "scores are divided by it: the lower, the sharper the weights (default: softmax and hard 1, entmax15 4, sparsemax 16)", above=0)
    soft_share: float = key(0.5, "`hard`, while training: share of target words whose context is the expectation under softmax instead of a draw", at_least=0, below=1)
    radius: int = key(10, "`local_m`, `local_p`: tokens seen on either side of the center", at_least=1)
    num_heads: int = key(1, "attentions side by side, each on its share of the sizes", at_least=1)
    coverage: str = key("none", "past attention to each word as an input of additive and concat scores: none, its sum, or its sum divided by the word's learned fertility", choices=("none", "accumulated", "fertility"))
    projection: str = key("identity", "of queries, keys and values, before they are split into heads", choices=("identity", "learned"))


@dataclass(kw_only=True)
class ModelConfig:
    """The translation model."""

    encoder: str = key("recurrent", "reader of the source; `recurrent`: layers of `cell` in both directions")
    decoder: str = key("bahdanau", "order of attention and update: `bahdanau`, `luong`, `conditional`; `gnmt`: the first layer queries, the others read; `fixed_context` has no attention")
    cell: str = key("gru", "recurrent cell", choices=("gru", "lstm"))
    embedding_size: int = key(256, "size of word embeddings", at_least=1, automatic=True)
    hidden_size: int = key(512, "size of the decoder's state; each direction of the encoder has half of it", at_least=2, automatic=True)
    num_layers: int = key(1, "layers of the encoder and of the decoder", at_least=1)
    self_attention_heads: int = key(0, "heads of a self-attention layer on top of the encoder; 0: no such layer", at_least=0)
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    readout: str = key("maxout", "what maps state, embedding and context to the input of the output layer: `maxout` is the paper's deep output, `linear` a linear layer and tanh; `luong` supports only `linear`", choices=("maxout", "linear"))
    input_feeding: bool = key(True, "`luong` only: feed the attentional vector to the next step")
    tied_embeddings: str = key("none", "weights shared: none; `target`: target embedding and output layer; `all`: source embedding too (joint vocabulary)", choices=("none", "target", "all"), automatic=True)
    dropout: float = key(0.2, "dropout wherever no rate of its own is given", at_least=0, below=1, automatic=True)
    embedding_dropout: float | None = key(None, "dropout on embeddings", at_least=0, below=1)
    state_dropout: float | None = key(None, "dropout on the encoder's states and between layers", at_least=0, below=1)
    output_dropout: float | None = key(None, "dropout before the output layer", at_least=0, below=1)
    locked_dropout: bool = key(False, "variational dropout: one mask for all steps of a sentence, on embeddings, on the encoder's states and before the output layer; between layers every step draws its own")
    word_dropout: float = key(0.0, "share of subwords, on both sides, whose whole embedding is set to 0 in training (the others are divided by 1 - share); 0.1 to 0.3 for small corpora", at_least=0, below=1)
    fast: str = key("auto", "train with derivatives written by hand, and translate with weights laid out for the processor; `off`: neither, for comparison", choices=("auto", "off"))

    def dropout_rate(self, place: Literal["embedding", "state", "output"]) -> float:
        """The dropout rate of a place: its own if it is given, else that of the model."""
        own: float | None = getattr(self, f"{place}_dropout")
        return self.dropout if own is None else own


@dataclass(kw_only=True)
class OptimizerConfig:
    """AdamW."""

    learning_rate: float = key(1e-3, "peak learning rate", above=0, at_most=1_000, automatic=True)
    betas: list[float] = key([0.9, 0.98], "decay of the two moments", length=2, at_least=0, below=1)
    epsilon: float = key(1e-8, "added to the denominator", above=0, at_most=1)
    weight_decay: float = key(0.0, "decoupled weight decay, on matrices only", at_least=0, at_most=1_000)
    clip_norm: float = key(1.0, "largest global norm of the gradient; 0 is off", at_least=0)


@dataclass(kw_only=True)
class ScheduleConfig:
    """Learning rate over updates."""

    kind: str = key("cosine", "shape after warm-up", choices=("constant", "inverse_sqrt", "cosine", "plateau"))
    warmup_steps: int = key(200, "updates of linear warm-up", at_least=0, automatic=True)
    final_factor: float = key(0.05, "`cosine`: the share of the peak that the learning rate falls to when training ends", at_least=0, at_most=1)
    factor: float = key(0.5, "`plateau`: multiply by this when the watched metric stops improving", above=0, below=1)
    patience: int = key(2, "`plateau`: validations without improvement that are tolerated before that", at_least=0)


@dataclass(kw_only=True)
class SearchConfig:
    """Decoding: greedy or beam search."""

    beam_size: int = key(5, "hypotheses kept; 1 is greedy", at_least=1, at_most=LARGEST_BEAM)
    length_penalty: float = key(1.0, "alpha of score = log p / length^alpha + coverage", at_least=0, at_most=10)
    coverage_penalty: float = key(0.0, "beta of coverage = beta x the sum over source tokens of log min(1, attention received); beams only", at_least=0, at_most=10)
    patience: float = key(1.0, "a search may stop once patience x `beam_size` hypotheses are finished, no running one scores better at its present length, and the greedy one has finished or been lost; inf: only when no running one can become better, which is slower", above=0)
    max_length_ratio: float = key(2.0, "longest translation = ratio x source subwords + offset, end marks included", above=0, at_most=1_000)
    max_length_offset: int = key(20, "see `max_length_ratio`", at_least=1)
    neighbors: int = key(0, "nearest words of the datastore (`python -m nmt.datastore RUN`) that are mixed into each prediction (`nmt/models/neighbors.py`); 0 is off; set it for translating and evaluating, not for training", at_least=0, at_most=1_000)
    neighbor_weight: float = key(0.3, "w, the share of the prediction that is the neighbors'", above=0, below=1)
    neighbor_temperature: float = key(0.2, "T: the higher, the less the nearer neighbors count for more", above=0, at_most=1_000)
    replace_unknown: bool = key(False, "`tokenizer.kind=whitespace`: let the model produce unknown words, and replace each by the source word with the most attention (Luong et al., 2015); subword models spell every word")
    batch_unit: str = key("sentences", "what `batch_size` counts: sentences, or source subwords, including eos and padding", choices=UNITS)
    batch_size: int = key(64, "size of a batch of sentences of similar length", at_least=1)


@dataclass(kw_only=True)
class SamplingConfig:
    """Translations drawn at random instead of searched (`nmt/search/sampling.py`); options of translation, not of a run."""

    temperature: float = key(1.0, "tokens are drawn from p^(1 / temperature); 0 is greedy", at_least=0, at_most=100)
    top_k: int | None = key(None, "draw among this many most probable tokens", at_least=1)
    top_p: float | None = key(None, "draw among the fewest most probable tokens that together have this share", above=0, at_most=1)
    seed: int = key(1, "the same seed and sentence give the same samples", at_least=0, at_most=LARGEST_SEED)


@dataclass(kw_only=True)
class GuidedAlignmentConfig:
    """Training attention toward the gold alignments of the training text (`data.train.alignment`, or the grammar's)."""

    weight: float = key(0.0, "of its term in the loss; 0 is off", at_least=0)
    decay: float = key(1.0, "the weight after e epochs is `weight` x `decay`^e", above=0, at_most=1)
    kind: str = key("cross_entropy", "distance between attention and links; `squared` suits sparsemax better: cross-entropy is steep at its zeros", choices=("cross_entropy", "squared"))


@dataclass(kw_only=True)
class ReinforceConfig:
    """REINFORCE, by which `model.attention.normalizer=hard` learns, since it samples."""

    discount: float = key(0.5, "discount of later words' log-probabilities in the reward of a sample: 1 is unbiased, lower values have less variance", at_least=0, at_most=1)
    baseline_decay: float = key(0.9, "of the moving average of the reward that is subtracted from it", at_least=0, below=1)
    entropy: float = key(0.01, "weight of the entropy of attention, which keeps it from collapsing early", at_least=0)


@dataclass(kw_only=True)
class MinimumRiskConfig:
    """Minimum-risk training, of a model that translates already (`trainer.initialize_from`), on sentence BLEU."""

    weight: float = key(0.0, "share of the risk in the objective, the rest being the cross-entropy; 0 is off", at_least=0, at_most=1)
    candidates: int = key(8, "translations of each sentence, the best of a beam as wide; time and memory of an update grow with it", at_least=2, at_most=LARGEST_BEAM)


@dataclass(kw_only=True)
class TrainerConfig:
    """The training loop."""

    device: str = key("auto", "where to train; with `torchrun` every process has a GPU of its own", choices=("auto", "cpu", "cuda"))
    precision: str = key("fp32", "arithmetic of matrix products in training; `auto`: bf16 where the device has instructions for it", choices=("fp32", "bf16", "auto"))
    initialize_from: str | None = key(None, "run or checkpoint folder whose weights and subwords a new run begins with, for fine-tuning; its model and tokenizer keys must be set alike")
    max_steps: int | None = key(None, "stop after this many updates", at_least=1)
    max_epochs: int | None = key(None, "stop after this many passes over the corpus", at_least=1)
    max_minutes: float | None = key(None, "stop after this much training time, including validations; also the horizon of the schedule", above=0)
    label_smoothing: float = key(0.1, "share of the probability spread over the vocabulary", at_least=0, below=1)
    consistency: float = key(0.0, "R-Drop: alpha of 1/2 [NLL_1 + NLL_2 + alpha/2 (KL(p, q) + KL(q, p))], p and q being the predictions of two passes of a batch through dropout; the paper has 5 for translation; an update takes twice the time and memory; 0 is off", at_least=0, at_most=1_000)
    minimum_risk: MinimumRiskConfig = field(default_factory=MinimumRiskConfig)
    guided_alignment: GuidedAlignmentConfig = field(default_factory=GuidedAlignmentConfig)
    reinforce: ReinforceConfig = field(default_factory=ReinforceConfig)
    accumulate: int = key(1, "batches per update", at_least=1)
    validate_every_steps: int | None = key(None, "validate after this many updates", at_least=1)
    validate_every_epochs: int | None = key(None, "validate after this many epochs (1 where no `validate_every_` is set)", at_least=1)
    validate_every_minutes: float | None = key(None, "validate after this much training time", above=0, automatic=True)
    save_every_minutes: float | None = key(15.0, "save `last` after this much time without a validation; every validation saves it too", above=0)
    metric: str = key("bleu", "what `best` and early stopping watch: `loss`, `perplexity`, `bleu`, `chrf`, `aer`, or another of METRICS (`nmt/evaluation/registry.py`) that is measured at validations and of which more, or less, is better")
    patience: int | None = key(None, "stop after this many validations without improvement", at_least=1)
    validation_beam_size: int = key(1, "beam of the translations made at validation", at_least=1, at_most=LARGEST_BEAM)
    ema_decay: float | None = key(None, "decay of an exponential moving average of the weights, used to validate and kept in `best`", above=0, below=1)
    log_every: int = key(20, "updates between points in TensorBoard and records in `metrics.jsonl`; a line is logged then, and after 4 s without one", at_least=1)
    num_samples: int = key(4, "validation sentences whose translation and heatmap are logged every time", at_least=0)
    evaluate: bool = key(True, "translate and score the test split with the best checkpoint at the end")


@dataclass(kw_only=True)
class TrainConfig:
    """Everything a training run needs (`configs/train.yaml`)."""

    run_dir: str = key("outputs/latest-run", "folder of the run; `configs/train.yaml` makes it `outputs/<date>/<time>`")
    seed: int = key(1, "seed of initialization, dropout and data order", at_least=0, at_most=LARGEST_SEED)
    resume: str = key("auto", "`auto`: go on from a checkpoint in `run_dir`; `never`: refuse a run_dir that holds one", choices=("auto", "never"))
    threads: int | None = key(None, "CPU threads of torch, per process (default: its own choice)", at_least=1, at_most=1_024)
    deterministic: bool = key(False, "the same weights bit by bit at every run on one machine, on a GPU too; needs limits that do not follow the clock")
    bleu_tokenize: str | None = key(None, "sacrebleu tokenizer of every BLEU; `none` for tokenized text; null: sacrebleu's own for `data.target_language` (`zh`, `ja-mecab`, `ko-mecab`, `char` for th, lo, km and my, else `13a`), and `13a` with `tokenizer.kind=whitespace`, whose text is tokenized", choices=BLEU_TOKENIZERS)
    lowercase: bool = key(False, "ignore case in BLEU, chrF and TER")
    automatic: list[str] = key([], "keys that the program chooses, unless they are given, from the number of training pairs and the time; null: all that support it; `[]`: none, so the defaults of this page hold", automatic=True)
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)


@dataclass(kw_only=True)
class EvaluationDataConfig:
    """Text to score instead of the run's own split."""

    test: SplitConfig = field(default_factory=SplitConfig)
    validation: SplitConfig = field(default_factory=SplitConfig)


@dataclass(kw_only=True)
class EvaluateSearchConfig:
    """Search settings that override those of the run; null keeps the run's."""

    # A list, and no class made from `SearchConfig`, so that mypy knows the types.
    beam_size: int | None = override(SearchConfig, "beam_size")
    length_penalty: float | None = override(SearchConfig, "length_penalty")
    coverage_penalty: float | None = override(SearchConfig, "coverage_penalty")
    patience: float | None = override(SearchConfig, "patience")
    max_length_ratio: float | None = override(SearchConfig, "max_length_ratio")
    max_length_offset: int | None = override(SearchConfig, "max_length_offset")
    neighbors: int | None = override(SearchConfig, "neighbors")
    neighbor_weight: float | None = override(SearchConfig, "neighbor_weight")
    neighbor_temperature: float | None = override(SearchConfig, "neighbor_temperature")
    replace_unknown: bool | None = override(SearchConfig, "replace_unknown")
    batch_unit: str | None = override(SearchConfig, "batch_unit")
    batch_size: int | None = override(SearchConfig, "batch_size")


@dataclass(kw_only=True)
class LinksConfig:
    """How attention between words becomes links: what the alignment error rate scores and `alignments.pharaoh` holds."""

    method: str = key("argmax", "a target word is linked to the source word of its greatest weight, or to all of at least `threshold`", choices=("argmax", "threshold"))
    threshold: float = key(0.3, "`threshold`: least weight of a link", above=0, at_most=1)
    words: str = key("split", "words of the translations in heatmaps, `alignments.pharaoh`, entropy and coverage; `split`: punctuation is a word, and so is each character of Chinese and Japanese, and each piece in other scripts without spaces; `spaces`: the parts between spaces, which gold and its scores count in any case", choices=WORDS)


@dataclass(kw_only=True)
class EvaluateConfig:
    """Everything an evaluation needs (`configs/evaluate.yaml`)."""

    checkpoint: str = key("outputs/latest", "run folder or checkpoint folder, or `hub:USER/NAME[@REVISION]`, a model of the Hugging Face hub")
    ensemble: list[str] = key([], "further runs for an ensemble with `checkpoint`: the mean of their probabilities; their subwords must be the same")
    output: str | None = key(None, "folder to write to; null: `evaluation/<split>` of the run, for another of its checkpoints than the best `evaluation/<split>-<checkpoint>`. A job of a sweep adds what sets it apart to the name, or makes a folder of that name in the one given")
    split: str = key("test", "split to score; `test_long` is the grammar's split of long sentences", choices=("test", "validation", "test_long"))
    data: EvaluationDataConfig = field(default_factory=EvaluationDataConfig)
    search: EvaluateSearchConfig = field(default_factory=EvaluateSearchConfig)
    baseline: str | None = key(None, "another run, to compare with by paired bootstrap resampling")
    alignment: LinksConfig = field(default_factory=LinksConfig)
    reverse: str | None = key(None, "a run trained from target to source: its links are intersected with this run's, scored, and written to `alignments.intersection.pharaoh`")
    saliency: bool = key(False, "explain translations by gradient times input too: heatmaps, alignment error rate, rank correlation with attention; takes longer than translating")
    bleu_tokenize: str | None = key(None, "sacrebleu tokenizer; `none` for tokenized text; null: that of the run", choices=BLEU_TOKENIZERS)
    lowercase: bool | None = key(None, "ignore case in BLEU, chrF and TER; null: as the run does")
    num_heatmaps: int = key(12, "sentences whose heatmap is drawn", at_least=0)
    device: str = key("auto", "where to translate", choices=("auto", "cpu", "cuda"))
    precision: str = key("fp32", "arithmetic of matrix products; `int8` is for a CPU", choices=PRECISIONS)
    threads: int | None = key(None, "CPU threads of torch (default: its own choice)", at_least=1, at_most=1_024)


@dataclass(kw_only=True)
class ServeConfig:
    """Everything the page and the API need (`configs/serve.yaml`)."""

    checkpoint: str = key("outputs/latest", "run folder or checkpoint folder, or `hub:USER/NAME[@REVISION]`, a model of the Hugging Face hub")
    compare: str | None = key(None, "a second run, whose translations stand beside those of `checkpoint`")
    search: EvaluateSearchConfig = field(default_factory=EvaluateSearchConfig)
    host: str = key("127.0.0.1", "address to listen on; the default is reachable from this machine only, `0.0.0.0` from every other: there is no password")
    port: int = key(8000, "port to listen on; 0 takes a free one", at_least=0, at_most=65_535)
    max_subwords: int = key(256, "longest sentence, in subwords", at_least=1)
    max_waiting: int = key(64, "most requests that wait for their turn or are translated; further ones are answered by status 503", at_least=1)
    requests_per_second: float = key(200.0, "most requests a second from one address, on average; further ones are answered by status 429", above=0)
    device: str = key("auto", "where to translate", choices=("auto", "cpu", "cuda"))
    precision: str = key("fp32", "arithmetic of matrix products; `int8` is for a CPU", choices=PRECISIONS)
    threads: int | None = key(None, "CPU threads of torch (default: its own choice)", at_least=1, at_most=1_024)


def keys(config: Any, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field[Any], Any]]:
    """Yield (dotted name, dataclass field, value) for every leaf of a configuration dataclass (instance)."""
    for member in dataclasses.fields(config):
        value = getattr(config, member.name)
        if dataclasses.is_dataclass(value):
            yield from keys(value, f"{prefix}{member.name}.")
        else:
            yield f"{prefix}{member.name}", member, value


def changes(before: Any, now: Any) -> dict[str, tuple[Any, Any]]:
    """Return (value before, value now) of every key in which two configurations differ."""
    values = {name: value for name, _, value in keys(before)}
    return {name: (values[name], value) for name, _, value in keys(now) if value != values[name]}


def type_name(member: dataclasses.Field[Any]) -> str:
    """Return the type of a key as a user writes it: `int`, `float or null`, `list[float]`, `any`."""
    name = member.type.__name__ if isinstance(member.type, type) and not get_args(member.type) else str(member.type)
    return name.replace("typing.", "").replace("Any", "any").replace(" | None", " or null")
