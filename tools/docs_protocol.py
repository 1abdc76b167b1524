"""The generated parts of docs/protocol.md: messages, types and enumerations."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from neo.protocol import enums, ids, packets
from neo.protocol.codec import LIMIT_GUEST, LIMIT_PEER, LIMIT_STRANGER

#: A link is written at the end of the first paragraph of a docstring: ``C ⇄ M``, ``M → A, C, S``.
_NODE = r"(?:SM|M|S|C|A|ctl|\*)"
_LINK = re.compile(rf"{_NODE}(?:(?: [→⇄] |, ){_NODE})*(?: [→⇄] |, ){_NODE}(?: \(not answered\))?$")
_ARROW = re.compile(rf"{_NODE} [→⇄] {_NODE}")

#: Types that fields name, in the order of the page.
_ALIASES = (
    "Oid Tid Checksum Nid Count Number Unsigned Typed Finite Compression Address Extra "
    "NodeRow CellRow CellChange StoredData Conflict"
).split()


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# -- messages --------------------------------------------------------------------------------------


def _docstring(message: type) -> str:
    """Return the docstring of a message, but not the one that NamedTuple generates."""
    return inspect.cleandoc(vars(message).get("__doc__") or "")


def describe(message: type) -> tuple[str, str]:
    """Return the meaning and the link of a message, from its docstring."""
    first, _, rest = _docstring(message).partition("\n\n")
    first = " ".join(first.split())
    found = _LINK.search(first)
    if found:
        link, first = found[0], first[: found.start()].rstrip()
    else:
        link = ", ".join(_ARROW.findall(first))
    return " ".join([first, *rest.split()]).strip(), link


def _field_type(annotation: Any) -> str:
    """Return the type of a field as in the source, with the words of the wire."""
    text = getattr(annotation, "__forward_arg__", str(annotation))
    text = re.sub(r" \| None\b", " or nil", text)
    return re.sub(r"\bNone\b", "nil", text)


def _arguments(message: type) -> str:
    fields = [f"`{name}: {_field_type(kind)}`" for name, kind in message.__annotations__.items()]
    return "<br>".join(fields) or "no argument"


def _code(number: int) -> str:
    return f"{number} `{number:#06x}`"


def _cell(text: str) -> str:
    # Docstrings use ``code``; in Markdown one backtick is enough.
    return text.replace("``", "`").replace("|", "\\|").replace("*", "\\*")


def _row(message: type) -> list[str]:
    meaning, link = describe(message)
    answer = packets.ANSWERS.get(message)
    if answer is None:
        answered = "no answer"
    elif answer is packets.Error:
        answered = "Error, code ACK"
    else:
        more = describe(answer)[0]
        answered = f"**{answer.__name__}**<br>{_arguments(answer)}"
        answered += f"<br>{_cell(more)}" if more else ""
    return [
        _code(packets.CODES[message]),
        f"**{message.__name__}**<br>{_arguments(message)}",
        answered,
        _cell(link),
        _cell(meaning),
    ]


def _sections() -> list[tuple[str, list[type]]]:
    """Return the messages by the titles of the source."""
    sections: list[tuple[str, list[type]]] = []
    asked = {message.__name__: message for message in packets.CODES if _leads(message)}
    pattern = re.compile(r"^# -- (.*?) -+$|^class (\w+)\((?:\w+|Request\[\w+\])\):$", re.MULTILINE)
    for title, name in pattern.findall(inspect.getsource(packets)):
        if title:
            sections.append((title, []))
        elif name in asked:
            sections[-1][1].append(asked[name])
    return sections


def _leads(message: type) -> bool:
    """Return whether a message has a row of its own: a request, a notification, or Error."""
    return message is packets.Error or not packets.CODES[message] & packets.RESPONSE


def messages() -> str:
    header = ["code", "message", "answer", "link", "meaning"]
    parts = []
    for title, rows in _sections():
        parts.append(
            f"### {title[0].upper()}{title[1:]}\n\n" + table(header, list(map(_row, rows)))
        )
    return "\n\n".join(parts)


def count() -> str:
    return str(sum(1 for m in packets.CODES if _leads(m) and not _ours(m)))


def _ours(message: type) -> bool:
    return bool(packets.CODES[message] & packets.EXTENSION)


# -- types -----------------------------------------------------------------------------------------


def wire(hint: Any) -> str:
    """Return how a type is encoded."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        if args[0] is int:
            greatest = 2**64 - 1 if args[1].le is None else args[1].le
            return f"int from {_power(args[1].ge)} to {_power(greatest)}"
        return "finite float" if args[0] is float else f"bin of {args[1].min_length} bytes"
    if origin in (Union, UnionType):
        (inner,) = (arg for arg in args if arg is not NoneType)
        return f"{wire(inner)} or nil"
    if origin is list:
        return f"array of {wire(args[0])}"
    if origin is tuple:
        return f"[{', '.join(map(wire, args))}]"
    if origin is dict:
        return f"map {wire(args[0])} → {wire(args[1])}"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint.__name__
    names = {bytes: "bin", str: "bin (UTF-8)", bool: "bool", Any: "any"}
    return names[hint]


def _power(number: int) -> str:
    """Return the limit of a range as a text; a power of two is shown as such."""
    for bits in (31, 32, 63, 64):
        if number == -(1 << bits):
            return f"-2^{bits}"
        if number == (1 << bits) - 1:
            return f"2^{bits} - 1"
    return str(number)


def types() -> str:
    return table(
        ["type", "on the wire"],
        [[f"`{name}`", wire(getattr(packets, name))] for name in _ALIASES],
    )


def enumerations() -> str:
    rows = []
    for number, enum in enumerate(enums.EXTENSION_TYPES):
        items = ", ".join(f"{item.value} {item.name}" for item in enum)
        rows.append([str(number), enum.__name__, items])
    return table(["extension type", "name", "items"], rows)


def node_ids() -> str:
    rows = []
    for kind in enums.NodeType:
        first = ids.nid_namespace(kind) + 1
        high = ids.NID_NAMESPACES[kind]
        name = ids.format_nid(first)
        rows.append([kind.name, f"`{high:+#05x}`", f"`{first}`", name])
    return table(["type", "high-order byte", "first id", "written"], rows)


def limits() -> str:
    return (
        f"{LIMIT_STRANGER // 1024} KiB before the peer has identified itself, "
        f"{LIMIT_GUEST // 2**20} MiB while the master does not vouch for it, "
        f"{LIMIT_PEER // 2**20} MiB afterwards"
    )


PARTS = {
    "messages": messages,
    "count": count,
    "types": types,
    "enumerations": enumerations,
    "node_ids": node_ids,
    "limits": limits,
}
