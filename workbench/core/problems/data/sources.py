"""Data that need no network and no file: drawn from a known model, or shipped with scikit-learn."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from .options import Options
from .table import Floats, Raw, Table, block_slices

CLASSES = 10  # of the synthetic multi-class set, as in MNIST and CIFAR-10
LOGIT_DEVIATION = 3.0  # standard deviation of the logits: most labels follow the model, some do not


@dataclass(frozen=True)
class SourceInfo:
    """What a menu shows of a source."""

    name: str  # what to pass to `load`
    samples: int  # for "synthetic" the default size
    features: int
    tasks: tuple[str, ...]  # that it suits
    classes: int  # 0 for a regression target or, for "synthetic", by task
    note: str  # one sentence naming the data
    bundled: bool = True  # False when it must be downloaded, or placed by hand, first


BINARY = ("binary", "multiclass")  # the tasks that two classes suit
NUMBERED = ("multiclass", "regression")  # the tasks that classes numbered by a quantity (digits) suit

_MADE = "Synthetic Gaussian samples, labelled by a random model: a stand-in for real data, of any size."
SYNTHETIC = SourceInfo("synthetic", 1000, 20, ("regression", "binary", "multiclass"), 0, _MADE)

# linnerud is left out: it has three targets and 20 samples.
BUNDLED = {
    name: SourceInfo(name, samples, features, tasks, classes, note)
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
    from sklearn import datasets  # here and elsewhere inside functions: importing it takes a second

    X, y = getattr(datasets, f"load_{source}")(return_X_y=True)
    return Raw(lambda rows, width: X[rows, :width], X.shape[1], y, BUNDLED[source].note)


def synthetic_table(options: Options) -> Table:
    """Draw samples and labels from a known model, in blocks; the same numbers whatever the block size.

    x ~ N(0, I) and t ~ N(0, I). Regression (paper 1, equation 10): y = x . t + N(0, 1). Binary:
    P(y = 1) = sigmoid(3 x . t / sqrt(p)). Multi-class: softmax with ten such models.
    """
    samples = options.samples or SYNTHETIC.samples
    features = options.features or SYNTHETIC.features
    # One stream each: how much the labels draw must not move the samples.
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
    """X @ model, but to the last bit independent of the block size and of the machine's BLAS."""
    return np.asarray((X * model).sum(axis=1))
