"""Registration of schemes, delay models, faults, problems, optimisers, schedules, clusters and commands.

Within this package, a new class is one more file in the package of its family. Another package registers a class, or
the module that defines it, in its pyproject.toml:

    [project.entry-points."workbench.schemes"]  # or .delays, .faults, .problems, .optimisers, .schedules, .clusters
    tiny = "tiny.scheme:Tiny"

    [project.entry-points."workbench.commands"]   # a click command, whose name is left of the "="
    tiny = "tiny.command:tiny"

Modules are imported when the first name is looked up. The ranks of real runs import them as well, so the package must
be installed on their hosts. A class that cannot be imported is skipped, with a `PluginWarning` that names its package.
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
    """Warning: a class of another package cannot be used. The message names the package."""


@cache
def _installed() -> Any:
    return entry_points()  # cached, because each call reads files of all installed packages


def points(group: str) -> EntryPoints:
    """Return all installed entry points of a group, such as ``workbench.schemes``."""
    return _installed().select(group=group)


def loaded(point: EntryPoint) -> Any:
    """Return the object of an entry point. Raises a `SettingError` that names its package."""
    try:
        return point.load()
    except (Exception, SystemExit) as error:  # code of another package may raise anything
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
    """Return an object, such as a widget, that a higher layer or another package has registered under a name.

    Raises `SettingError` if nothing is registered, or the object cannot be loaded.
    """
    for point in points(group).select(name=name):
        return loaded(point)
    raise SettingError(f"{name}: nothing is registered for it in {group}; reinstall the package")


def owner(point: EntryPoint) -> str:
    """Return the package of an entry point as text, with its version."""
    return f"package {point.dist.name} {point.dist.version}" if point.dist else f"module {point.module}"


class Catalogue(Mapping[str, type[T]]):
    """Classes of one family by name, in alphabetical order.

    The first look-up imports every module of the family's package, and then the entry points of its group. A class that
    cannot be imported is skipped with a warning.
    """

    def __init__(self, field: str, package: str, group: str) -> None:
        self.field, self.package, self.group = field, package, group
        self._classes: dict[str, type[T]] = {}
        self._lock, self._found = RLock(), False
        self._heard: list[WeakMethod[Callable[[], None]]] = []

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call a bound method after each registration, as long as its object exists."""
        self._heard = [*(each for each in self._heard if each() is not None), WeakMethod(callback)]

    def add(self, name: str, cls: type[T]) -> None:
        """Register a class. It replaces a class of the same name, for example if a notebook cell is run again.

        A package that tries to replace a class of another package gets a warning.
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
        """Register a class in place of any other class of its name."""
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
        """Return the class of a name, or a class of a user file ("mine.py:Half").

        Raises `SettingError` with the most similar name.
        """
        if isinstance(name, str) and ".py:" in name:
            found = class_of(name, self.field)
            if getattr(found, "catalogue", None) is not self:
                raise SettingError(f"{self.field} = {name!r}: is not a {self.field} with a name of its own")
            return found
        known = self._classes.get(name) if isinstance(name, str) else None
        # the name belongs to the workbench, so no other package can have it
        if known is not None and _home(known) == "workbench":
            return known
        if not isinstance(name, str) or not self.knows(name):
            error = unknown_name(self.field, name, self)
            raise error if (now := limit()) is None else now.unknown(error)
        return self[name]

    def knows(self, name: str) -> bool:
        """Return whether there is a class of that name. If it is unknown, newly installed packages are searched."""
        if name not in self:
            invalidate_caches()
            _installed.cache_clear()
            with self._lock:
                self._find()
        return name in self

    def _all(self) -> dict[str, type[T]]:
        with self._lock:
            if not self._found:
                self._found = True  # set first, because imported modules may look up names themselves
                try:
                    self._find()
                # after a broken workbench module or Ctrl-C, the next look-up tries again
                except BaseException:
                    self._found = False
                    raise
        return self._classes

    def look(self) -> EntryPoints:
        """Import every module of the family's package.

        Return the entry points of other packages without loading them.
        """
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
    """Return the top-level package of a class."""
    return cls.__module__.partition(".")[0]


class Family(Settings):
    """Base of a family of settings: a subclass that sets `name` (or `kind`) is added to the family's catalogue.

    The name is a plain class attribute, such as `name = "Half"`, which users type to choose the class.
    """

    catalogue: ClassVar[Catalogue[Any]]

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Register the class under its name. Raises `SettingError` for a field with the name of a base's attribute."""
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
    """Return the `name` of a class, or else its `kind`."""
    return str(getattr(cls, "name", "") or getattr(cls, "kind", ""))


OWN_KINDS = {"kinds": "own"}  # context of `model_dump`, see `KindFamily`


class KindFamily(Family):
    """Family whose classes are chosen in YAML by the key `kind`, next to the fields of the class."""

    kind: ClassVar[str] = ""

    def __init_subclass__(cls, **options: Any) -> None:
        """Accept `kind: Literal["half"] = "half"`, as in classes of version 1.0, whose sources are in run folders."""
        if vars(cls).get("__annotations__", {}).pop("kind", None) is not None:
            given = vars(cls).get("kind", "")
            cls.kind = getattr(given, "default", given)
        super().__init_subclass__(**options)

    @model_validator(mode="before")
    @classmethod
    def _without_kind(cls, data: Any) -> Any:
        """Remove the key `kind`, which `model_dump` writes. It is not a field, because the class is already chosen."""
        if isinstance(data, dict) and data.get("kind", "") == cls.kind:
            return {name: value for name, value in data.items() if name != "kind"}
        return data

    @model_serializer(mode="wrap")
    def _with_kind(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Write `kind` before the fields.

        A class of a user file is written as FILE.py:NAME, so that it can be found again.

        With the context `OWN_KINDS`, the kind of the class itself is written, because ranks receive the class and not
        the file.
        """
        fields: dict[str, Any] = handler(self)
        wanted = "kind" not in (info.exclude or ()) and (info.include is None or "kind" in info.include)
        kind = self.kind if info.context == OWN_KINDS else self.written_kind
        return {"kind": kind, **fields} if wanted else fields

    @classmethod
    def nested_in(cls, settings: Settings) -> "list[KindFamily]":
        """Return the settings with a `kind` that are fields of the given settings, at any depth.

        >>> from workbench.core.contract.optimisers import GradientDescent
        >>> [part.kind for part in KindFamily.nested_in(GradientDescent(schedule={"kind": "cosine"}))]
        ['cosine']
        """
        own = [getattr(settings, name) for name in type(settings).model_fields]
        each = [part for value in own for part in (value if isinstance(value, tuple) else (value,))]
        inner = [part for part in each if isinstance(part, Settings)]
        return [
            *(part for part in inner if isinstance(part, cls)),
            *(further for part in inner for further in cls.nested_in(part)),
        ]

    @property
    def newest(self) -> type[Any]:
        """Newest class of its kind: a new class if its cell was run again, or its user file was changed."""
        if ".py:" in self.written_kind:
            return self.catalogue.get_class(self.written_kind)
        return self.catalogue.get(self.kind, type(self))

    @property
    def written_kind(self) -> str:
        """Value of `kind` that chooses the class: its kind, or FILE.py:NAME."""
        return str(self.__dict__.get("written", self.kind))

    @classmethod
    def _without_a_kind(cls, default: str) -> str:
        return f"has no kind; give one, e.g. {{kind: {default or next(iter(cls.catalogue))}}}"

    @classmethod
    def from_fields(cls, value: Any, default: str = "") -> Any:
        """Build an instance of the class that the key `kind` names. An instance is returned unchanged.

        `default`: kind for a dict without that key. Raises `SettingError`.
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
            found.__dict__["written"] = kind  # stored outside of the fields, so that comparisons ignore it
            return found
        if not isinstance(kind, str) or not cls.catalogue.knows(kind):
            error = SettingError(f"kind = {str(kind)!r}: choose one of {', '.join(map(repr, cls.catalogue))}")
            raise error if (now := limit()) is None else now.unknown(error)
        return cls.catalogue[kind](**fields)
