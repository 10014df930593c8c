"""Data without a network or a file: drawn from a known model, or shipped with scikit-learn."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from . import images
from .options import DataError, Options
from .table import Floats, Raw, Table, block_slices

CLASSES = 10  # number of classes of the synthetic multi-class set, as in MNIST and CIFAR-10
LOGIT_DEVIATION = 3.0  # standard deviation of the logits: most labels follow the model, some do not


@dataclass(frozen=True)
class SourceInfo:
    """Description of a source, as menus show it."""

    name: str  # name that `load` takes
    samples: int  # number of samples; for "synthetic" the default number
    features: int
    tasks: tuple[str, ...]  # tasks that the source suits
    classes: int  # 0 for a regression target or, for "synthetic", by task
    note: str  # one sentence naming the data
    bundled: bool = True  # whether it is available without a download
    drawn: bool = False  # whether samples are drawn from a model, so that any number is available
    image: tuple[int, int, int] | None = None  # channels, rows and columns, if a sample is an image

    def fits(self, samples: int, features: int) -> bool:
        """Return whether the source has that many samples and features."""
        many = self.drawn or samples <= self.samples
        return many and (features <= self.features or (self.drawn and self.image is None))


BINARY = ("binary", "multiclass")  # tasks that a target of two classes suits
NUMBERED = ("multiclass", "regression")  # tasks that a target of numbered classes (digits) suits

_MADE = "Synthetic Gaussian samples, labelled by a random model: a stand-in for real data, of any size."
SYNTHETIC = SourceInfo("synthetic", 1000, 20, ("regression", "binary", "multiclass"), 0, _MADE, drawn=True)
STAND_IN = SourceInfo(
    "synthetic_images",
    1000,
    images.PIXELS,
    ("multiclass",),
    images.CLASSES,
    images.NOTE,
    drawn=True,
    image=images.SHAPE,
)
DRAWN = {info.name: info for info in (SYNTHETIC, STAND_IN)}

# linnerud is omitted: it has three targets and 20 samples.
BUNDLED = {
    name: SourceInfo(
        name, samples, features, tasks, classes, note, image=(1, 8, 8) if name == "digits" else None
    )
    for name, samples, features, tasks, classes, note in (
        ("breast_cancer", 569, 30, BINARY, 2, "Breast cancer Wisconsin: cell nuclei, malignant 0, benign 1."),
        ("diabetes", 442, 10, ("regression",), 0, "Diabetes progression (Efron 2004), not two-class Pima."),
        ("digits", 1797, 64, NUMBERED, 10, "Handwritten digits of 8 x 8 pixels: a small stand-in for MNIST."),
        ("iris", 150, 4, ("multiclass",), 3, "Iris flowers (Fisher 1936): sepal and petal sizes, 3 species."),
        ("wine", 178, 13, ("multiclass",), 3, "Wine recognition: chemical analyses, 3 growers."),
    )
}


def bundled_raw(source: str) -> Raw:
    """Read a set that scikit-learn ships."""
    from sklearn import datasets  # imported late, because the import takes a second

    X, y = getattr(datasets, f"load_{source}")(return_X_y=True)
    return Raw(lambda rows, width: X[rows, :width], X.shape[1], y, BUNDLED[source].note)


def check_drawn(options: Options) -> None:
    """Raise `DataError` if a choice does not suit a source that is drawn."""
    info = DRAWN[options.source]
    if isinstance(options.test, str):
        why = f"{info.name!r} is drawn, and a file cannot have samples of it; take a share such as 0.2"
        raise DataError(f"test: {options.test!r} is a file; {why}")
    if info.image and options.features not in (None, info.features):
        why = f"{options.features} does not fit {info.name!r}; take {info.features}, or leave it empty"
        raise DataError(f"features: {why}")


def drawn_table(options: Options) -> Table:
    """Draw the samples of `SYNTHETIC` or `STAND_IN`."""
    if options.source == SYNTHETIC.name:
        return synthetic_table(options)
    return images.stand_in(options, options.samples or STAND_IN.samples)


def synthetic_table(options: Options) -> Table:
    """Draw samples and labels from a known model, in blocks. The block size does not change the values.

    x ~ N(0, I) and t ~ N(0, I). Regression (paper 1, equation 10): y = x . t + N(0, 1). Binary:
    P(y = 1) = sigmoid(3 x . t / sqrt(p)). Multi-class: softmax with ten such models.
    """
    samples = options.samples or SYNTHETIC.samples
    features = options.features or SYNTHETIC.features
    # Separate streams, so that the draws of the labels do not change the samples.
    model_seed, x_seed, label_seed = np.random.SeedSequence(options.seed).spawn(3)
    label, truth = _TEACHERS[options.task](np.random.default_rng(model_seed), features)

    def blocks() -> Iterator[tuple[Floats, Floats]]:
        x_rng, label_rng = np.random.default_rng(x_seed), np.random.default_rng(label_seed)
        for rows in block_slices(samples, features):
            X = x_rng.standard_normal((rows.stop - rows.start, features))
            yield X, label(X, label_rng)

    classes = {"regression": 0, "binary": 2, "multiclass": CLASSES}[options.task]
    note = f"Synthetic {_KINDS[options.task]}, seed {options.seed}: a stand-in, not measured data."
    return Table(samples, features, classes, note, blocks, truth=truth, trusted=True)


Label = Callable[[Floats, np.random.Generator], Floats]
Teacher = tuple[Label, Floats | None]


def _linear(rng: np.random.Generator, features: int) -> Teacher:
    truth = rng.standard_normal(features)
    return lambda X, noise: _dot(X, truth) + noise.standard_normal(len(X)), truth


def _logistic(rng: np.random.Generator, features: int) -> Teacher:
    truth = LOGIT_DEVIATION / np.sqrt(features) * rng.standard_normal(features)

    def label(X: Floats, noise: np.random.Generator) -> Floats:
        chance = 1 / (1 + np.exp(-_dot(X, truth)))
        return (noise.random(len(X)) < chance).astype(np.float64)

    return label, truth


def _softmax(rng: np.random.Generator, features: int) -> Teacher:
    models = LOGIT_DEVIATION / np.sqrt(features) * rng.standard_normal((CLASSES, features))

    def label(X: Floats, noise: np.random.Generator) -> Floats:
        logits = np.stack([_dot(X, model) for model in models], axis=1)
        weights = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)
        drawn = noise.random(len(X)) * weights[:, -1]
        return np.asarray((weights[:, :-1] <= drawn[:, None]).sum(axis=1), dtype=np.float64)

    return label, None


_TEACHERS: dict[str, Callable[[np.random.Generator, int], Teacher]] = {
    "regression": _linear,
    "binary": _logistic,
    "multiclass": _softmax,
}
_KINDS = {
    "regression": "linear regression (paper 1, equation 10)",
    "binary": "two-class samples from a logistic model",
    "multiclass": "ten-class samples from a softmax model",
}


def _dot(X: Floats, model: Floats) -> Floats:
    """Return X @ model with the same bits for every block size and every BLAS."""
    return np.asarray((X * model).sum(axis=1))
