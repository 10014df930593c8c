"""Where a new scheme, delay model, fault, problem, optimiser, schedule, kind of cluster or command is registered.

Ours is one more file in the package that its family lives in. Another package names a class, or the module in which it
is defined, in its pyproject.toml, and nothing here needs an edit:

    [project.entry-points."workbench.schemes"]  # or .delays, .faults, .problems, .optimisers, .schedules, .clusters
    tiny = "tiny.scheme:Tiny"

    [project.entry-points."workbench.commands"]   # a click command, called by the name in front
    tiny = "tiny.command:tiny"

Nothing is looked for before somebody asks for a name. Real runs look for themselves, so the package must be installed
where the ranks are. What cannot be imported is left out, with a `PluginWarning` that says whose it is.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module, invalidate_caches
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pkgutil import iter_modules
from threading import RLock
from typing import Any, ClassVar, TypeVar
from weakref import WeakMethod

from pydantic import SerializationInfo, SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic_core import PydanticKnownError

from workbench.core.base.errors import MissingLayer
from workbench.core.base.extras import not_installed
from workbench.core.base.settings import SettingError, Settings, unknown_name
from workbench.core.base.trust import limit
from workbench.core.base.user_code import LOOSE_MODULE_PREFIX, class_of

T = TypeVar("T")


class PluginWarning(UserWarning):
    """Something of another package cannot be used; the message names the package."""


@cache
def _installed() -> Any:
    return entry_points()  # each call reads the files of every package that is installed


def points(group: str) -> EntryPoints:
    """What the packages that are installed here name in a group, such as ``workbench.schemes``."""
    return _installed().select(group=group)


def loaded(point: EntryPoint) -> Any:
    """What an entry point names; raises `SettingError`, one sentence that says whose it is."""
    try:
        return point.load()
    except (Exception, SystemExit) as error:  # whatever another package's code does when it is imported
        if isinstance(error, ImportError):
            known = not_installed(point.name, error)
            if isinstance(known, MissingLayer):
                raise SettingError(str(known)) from None
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise SettingError(
            f"{owner(point)}: what it adds to {point.group} cannot be used ({point.name} = {point.value}: {why});"
            " fix the package, or uninstall it"
        ) from error


def registered(group: str, name: str) -> Any:
    """Return what a higher layer or another package has registered under a name, such as a widget for a table.

    Raises `SettingError` where nothing is registered, or it cannot be loaded.
    """
    for point in points(group).select(name=name):
        return loaded(point)
    raise SettingError(f"{name}: nothing is registered for it in {group}; reinstall the package")


def owner(point: EntryPoint) -> str:
    """The package that an entry point is of, in words."""
    return f"package {point.dist.name} {point.dist.version}" if point.dist else f"module {point.module}"


class Catalogue(Mapping[str, type[T]]):
    """The classes of one family by name, in the order of the alphabet.

    Whoever first looks for a name has every module of the family's package imported, then what others add to its group.
    What cannot be imported is left out with a warning.
    """

    def __init__(self, field: str, package: str, group: str) -> None:
        self.field, self.package, self.group = field, package, group
        self._classes: dict[str, type[T]] = {}
        self._lock, self._found = RLock(), False
        self._heard: list[WeakMethod[Callable[[], None]]] = []

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call a method, for as long as its object lives, after a class has been registered or replaced."""
        self._heard = [*(each for each in self._heard if each() is not None), WeakMethod(callback)]

    def add(self, name: str, cls: type[T]) -> None:
        """Register a class in place of one of the same name, as when a notebook's cell is run again.

        A package that comes later takes no name of another's.
        """
        taken = self._classes.get(name, cls)
        home = _home(cls)
        if home in (_home(taken), "workbench", "__main__") or home.startswith(LOOSE_MODULE_PREFIX):
            self._classes[name] = cls
            self._tell()
        else:
            why = f"{self.field} = {name!r} is taken by {taken.__module__}; give it another name"
            warnings.warn(f"{cls.__module__}.{cls.__name__}: {why}", PluginWarning, stacklevel=2)

    def replace(self, cls: type[T]) -> None:
        """Register a class in place of whatever has its name."""
        self._all()
        self._classes[_name(cls)] = cls
        self._tell()

    def _tell(self) -> None:
        for each in self._heard:
            if callback := each():
                callback()

    def __getitem__(self, name: str) -> type[T]:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._all()))

    def __len__(self) -> int:
        return len(self._all())

    def get_class(self, name: object) -> type[T]:
        """Class of a name, or of a loose file ("mine.py:Half"); raises `SettingError` with the nearest name."""
        if isinstance(name, str) and ".py:" in name:
            found = class_of(name, self.field)
            if getattr(found, "catalogue", None) is not self:
                raise SettingError(f"{self.field} = {name!r}: is not a {self.field} with a name of its own")
            return found
        known = self._classes.get(name) if isinstance(name, str) else None
        if known is not None and _home(known) == "workbench":  # nobody else can have it: no need to look
            return known
        if not isinstance(name, str) or not self.knows(name):
            error = unknown_name(self.field, name, self)
            raise error if (now := limit()) is None else now.unknown(error)
        return self[name]

    def knows(self, name: str) -> bool:
        """Is a class of that name there, or has a package that has it been installed since the last look?"""
        if name not in self:
            invalidate_caches()
            _installed.cache_clear()
            with self._lock:
                self._find()
        return name in self

    def _all(self) -> dict[str, type[T]]:
        with self._lock:
            if not self._found:
                self._found = True  # before: what is imported may look for names itself
                try:
                    self._find()
                except BaseException:  # a broken module of ours, or Ctrl-C: the next one tries again
                    self._found = False
                    raise
        return self._classes

    def look(self) -> EntryPoints:
        """Import every module of the family's own package; returns what others add, of which nothing is imported."""
        for module in iter_modules(import_module(self.package).__path__):
            try:
                import_module(f"{self.package}.{module.name}")
            except ModuleNotFoundError as error:
                raise not_installed(self.field, error) from None
        return points(self.group)

    def _find(self) -> None:
        for point in self.look():
            try:
                loaded(point)
            except SettingError as error:
                warnings.warn(str(error), PluginWarning, stacklevel=2)


def _home(cls: type) -> str:
    """The package that a class is of."""
    return cls.__module__.partition(".")[0]


class Family(Settings):
    """Base of a family of settings: a subclass with a `name` (or `kind`) of its own is in the family's catalogue.

    It is a plain class attribute, `name = "Half"`: the word by which users choose the class.
    """

    catalogue: ClassVar[Catalogue[Any]]

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Register under the class's own name. Raises `SettingError` for a field that a base's own attribute hides."""
        super().__pydantic_init_subclass__(**kwargs)
        bases = [base for base in cls.__mro__[1:] if issubclass(base, Settings)]
        for name, base in ((n, b) for n in cls.model_fields for b in bases if n in vars(b)):
            raise SettingError(
                f"{cls.__name__}.{name}: {base.__name__} has a {name!r} of its own, which would be read in its place;"
                f" give the field another name, such as own_{name}"
            )
        if (name := _name(cls)) and name not in map(_name, cls.__mro__[1:]):
            cls.catalogue.add(name, cls)


def _name(cls: type) -> str:
    """Return the class's `name`, else its `kind`."""
    return str(getattr(cls, "name", "") or getattr(cls, "kind", ""))


OWN_KINDS = {"kinds": "own"}  # context of `model_dump`, see `KindFamily`


class KindFamily(Family):
    """Family whose classes are chosen in YAML by the key `kind`, beside the fields of the class."""

    kind: ClassVar[str] = ""

    def __init_subclass__(cls, **options: Any) -> None:
        """Read `kind: Literal["half"] = "half"`, as classes of version 1.0 have it in the sources of run folders."""
        if vars(cls).get("__annotations__", {}).pop("kind", None) is not None:
            given = vars(cls).get("kind", "")
            cls.kind = getattr(given, "default", given)
        super().__init_subclass__(**options)

    @model_validator(mode="before")
    @classmethod
    def _without_kind(cls, data: Any) -> Any:
        """Take the kind, which `model_dump` writes, for what it is: the class itself."""
        if isinstance(data, dict) and data.get("kind", "") == cls.kind:
            return {name: value for name, value in data.items() if name != "kind"}
        return data

    @model_serializer(mode="wrap")
    def _with_kind(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Write the kind first; that of a class of a loose file as it was written, so that it is found again.

        With the context `OWN_KINDS` it is the class's own kind, for ranks, which are sent the class and not the file.
        """
        fields: dict[str, Any] = handler(self)
        wanted = "kind" not in (info.exclude or ()) and (info.include is None or "kind" in info.include)
        kind = self.kind if info.context == OWN_KINDS else self.written_kind
        return {"kind": kind, **fields} if wanted else fields

    @classmethod
    def nested_in(cls, settings: Settings) -> "list[KindFamily]":
        """Return the settings with a kind that are fields of others, at any depth.

        >>> from workbench.core.contract.optimisers import GradientDescent
        >>> [part.kind for part in KindFamily.nested_in(GradientDescent(schedule={"kind": "cosine"}))]
        ['cosine']
        """
        own = [getattr(settings, name) for name in type(settings).model_fields]
        found = [value for value in own if isinstance(value, cls)]
        return [*found, *(inner for part in found for inner in cls.nested_in(part))]

    @property
    def newest(self) -> type[Any]:
        """The class that its kind chooses now: another one after a cell was run again, or a loose file changed."""
        if ".py:" in self.written_kind:
            return self.catalogue.get_class(self.written_kind)
        return self.catalogue.get(self.kind, type(self))

    @property
    def written_kind(self) -> str:
        """The word that chooses the class: its kind, or FILE.py:NAME."""
        return str(self.__dict__.get("written", self.kind))

    @classmethod
    def _without_a_kind(cls, default: str) -> str:
        return f"has no kind; give one, e.g. {{kind: {default or next(iter(cls.catalogue))}}}"

    @classmethod
    def from_fields(cls, value: Any, default: str = "") -> Any:
        """Build the class that the key `kind` names from the other fields; an instance is returned as it is.

        `default`: the kind where there is none. Raises `SettingError`.
        """
        if isinstance(value, cls):
            if value.written_kind:
                return value
            raise ValueError(f"{type(value).__name__} {cls._without_a_kind(default)}")
        if not isinstance(value, dict):
            raise PydanticKnownError("model_attributes_type")
        kind = value.get("kind", default)
        if not kind:
            raise ValueError(cls._without_a_kind(default))
        fields = {name: given for name, given in value.items() if name != "kind"}
        if isinstance(kind, str) and ".py:" in kind:
            found = cls.catalogue.get_class(kind)(**fields)
            found.__dict__["written"] = kind  # not a field: settings that differ in it alone are equal
            return found
        if not isinstance(kind, str) or not cls.catalogue.knows(kind):
            error = SettingError(f"kind = {str(kind)!r}: choose one of {', '.join(map(repr, cls.catalogue))}")
            raise error if (now := limit()) is None else now.unknown(error)
        return cls.catalogue[kind](**fields)
