"""What a handler's annotations say about its payload and its result, and how values of those types look in JSON.

msgspec knows most types: dataclasses, Structs, attrs classes, TypedDict, NamedTuple, datetime and its kin, Decimal,
UUID, bytes (base64), enums, and containers of them. Added here are pydantic models, which are only looked for where
pydantic is loaded anyway, and unions whose members msgspec cannot tell apart: the member whose JSON is exactly what
arrived is taken, else the first one that fits.

Annotations are read when they are first needed, because they may name a class that is defined further down.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, Union

import msgspec

Hook = Callable[[type, object], object]
"""Makes a value of a type that msgspec does not know from what JSON had for it."""


class Hint:
    """The type that a payload or a result is declared to have."""

    __slots__ = ("_annotation", "_globals", "_type", "_where")

    def __init__(self, annotation: object, globals: dict[str, Any] | None = None, where: str = "") -> None:
        self._annotation = annotation
        self._globals = globals
        self._where = where
        self._type: Any = None

    @property
    def says_nothing(self) -> bool:
        """True when any plain JSON value is as good as another: no annotation, Any, object."""
        return self.type is Any

    @property
    def type(self) -> Any:
        """The type itself. TypeError for an annotation that names what its module does not have at run time."""
        if self._type is None:
            self._type = self._resolved()
        return self._type

    def _resolved(self) -> Any:
        holder = types.SimpleNamespace(__annotations__={"it": self._annotation})
        try:
            found = typing.get_type_hints(holder, self._globals or {}, include_extras=True)["it"]
        except Exception as error:  # whatever evaluating the annotation raises
            raise TypeError(
                f"{self._where} cannot be read: {error}; what it names must be imported when the program runs, and at"
                " the top level of the module"
            ) from error
        if found in (object, Any):
            return Any
        return None.__class__ if found in (typing.NoReturn, typing.Never) else found

    def decoder(self, hook: Hook) -> msgspec.json.Decoder[Any]:
        """Reads JSON. TypeError for a type of which nothing can be read."""
        try:
            return msgspec.json.Decoder(self.shape, dec_hook=hook)
        except TypeError as error:
            raise TypeError(f"{self._where or self.type} has no form in JSON that can be read: {error}") from error

    @property
    def shape(self) -> Any:
        """The type with a stand-in for each union that msgspec cannot tell apart."""
        return _shape(self.type)


ANY = Hint(Any)
"""Says nothing."""


def of_function(function: Callable[..., Any]) -> tuple[Hint, Hint]:
    """The hints of the payload, a handler's second parameter, and of its result."""
    inner = inspect.unwrap(function)
    name = getattr(function, "__name__", repr(function))
    signature = inspect.signature(function)
    payload: object = inspect.Parameter.empty
    parameters = list(signature.parameters.values())
    if len(parameters) > 1 and parameters[1].kind is not inspect.Parameter.VAR_POSITIONAL:
        payload = parameters[1].annotation
    return tuple(
        ANY
        if annotation is inspect.Signature.empty
        else Hint(annotation, getattr(inner, "__globals__", None), f"the annotation of the {what} of task {name!r}")
        for annotation, what in ((payload, "payload"), (signature.return_annotation, "result"))
    )  # type: ignore[return-value]


def of_value(value: object) -> Hint:
    """The hint of a value that nobody declared: its own class, when that is none of Python's own containers and
    scalars."""
    kind = type(value)
    return ANY if kind.__module__ == "builtins" else Hint(kind)


# --------------------------------------------------------------------------------------------------------------- unions
class _AnyInstance(type):
    """msgspec looks whether a hook made an instance of the class it was asked for: for a union any member is one."""

    def __instancecheck__(cls, instance: object) -> bool:
        return True


class Choice(metaclass=_AnyInstance):
    """Base of the stand-ins for a union; a class for each, made by `_choice`."""

    members: tuple[Any, ...] = ()


def _shape(hint: Any) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return typing.Annotated[_shape(args[0]), *hint.__metadata__]
    if origin in (typing.Literal, None) or not args:
        return hint
    if origin in (Union, types.UnionType):
        members = tuple(map(_shape, args))
        together = Union.__getitem__(members)
        return together if _known(together) else _choice(members)
    shaped = tuple(_shape(arg) if not isinstance(arg, list) else arg for arg in args)
    return hint if shaped == args else origin[shaped]


def _known(union: Any) -> bool:
    try:
        msgspec.json.Decoder(union)
    except TypeError:
        return False
    return True


def _choice(members: tuple[Any, ...]) -> type[Choice]:
    return _AnyInstance("Choice", (Choice,), {"members": members})  # type: ignore[return-value]


def chosen(choice: type[Choice], value: object, hook: Hook, plain: Callable[[object], object]) -> object:
    """The value as the member that it stands for. ValueError when it fits none."""
    fitting: list[object] = []
    for member in choice.members:
        try:
            found = msgspec.convert(value, member, dec_hook=hook)
        except Exception:  # noqa: BLE001 - to make a value may run the application's own code
            continue
        if msgspec.to_builtins(found, enc_hook=plain) == value:
            return found
        fitting.append(found)
    if not fitting:
        names = " | ".join(getattr(member, "__name__", str(member)) for member in choice.members)
        raise ValueError(f"Expected `{names}`, got `{type(value).__name__}`")
    return fitting[0]


# --------------------------------------------------------------------------------------------------- types of others
def plain(value: object) -> object:
    """What JSON has for a value that msgspec does not know. NotImplementedError when there is nothing."""
    if _is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True, round_trip=True)  # type: ignore[attr-defined]
    raise NotImplementedError(f"objects of type {type(value).__name__} are not supported")


def from_plain(kind: type, value: object) -> object:
    """A value of a type that msgspec does not know. NotImplementedError when nothing makes one, ValueError for what
    does not fit."""
    if kind is object:
        return value
    if isinstance(kind, type) and _is_model(kind):
        return _validated(kind, value)
    raise NotImplementedError(f"Nothing here makes a `{getattr(kind, '__name__', kind)}`")


def _is_model(kind: type) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(kind, pydantic.BaseModel)


def _validated(model: Any, value: object) -> object:
    """In pydantic's JSON mode, which takes text for a datetime in strict models too."""
    try:
        return model.model_validate_json(msgspec.json.encode(value))
    except sys.modules["pydantic"].ValidationError as error:
        first, *more = error.errors(include_url=False, include_context=False, include_input=False)
        where = ".".join(map(str, first["loc"]))
        rest = f" (and {len(more)} more)" if more else ""
        raise ValueError(f"{where + ': ' if where else ''}{first['msg']}{rest}") from None
