"""Natural text to measure with, made from a seed.

Speculative decoding guesses from what the text has said before, so its acceptance shows only on text that
repeats itself as reports and source code do and that has an obvious continuation; random tokens have neither.
A document here keeps to a few names and says related things about them, and its ending begins what should follow.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from msgspec import Struct

_PLACES = (
    "Lindmoor", "Harrow Quay", "Saltbridge", "Ostrava Road", "Kestrel Point", "Amber Vale", "Northgate", "Tern Island",
    "Millbrook", "Fennick", "Oldcastle", "Birch Landing", "Corran", "Westerdale", "Pike Hollow", "Juniper Flats",
)  # fmt: skip
_PEOPLE = (
    "Ada Brandt", "Jonas Okafor", "Mei Lindqvist", "Tomás Rivera", "Priya Nand", "Owen Hartley", "Sofia Marchetti",
    "Kenji Aoki", "Leila Haddad", "Marek Novak", "Ruth Adeyemi", "Pavel Iliev", "Grace Moreau", "Hana Suzuki",
)  # fmt: skip
_THINGS = (
    "water pump", "grain store", "signal tower", "ferry engine", "cold room", "cable drum", "harbour crane",
    "weather mast", "solar panel", "pressure valve", "loading ramp", "backup generator", "fuel tank", "radio link",
)  # fmt: skip
_STATES = ("in good order", "due for repair", "out of use", "running hot", "running well", "waiting for a part")
_ACTS = ("checked", "cleaned", "replaced", "moved", "sealed", "measured", "painted", "tested")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_CLASSES = ("Tray", "Parcel", "Vessel", "Sensor", "Ticket", "Ledger", "Furnace", "Conveyor", "Battery", "Turbine")
_FIELDS = (
    "width", "height", "depth", "weight", "capacity", "temperature", "pressure", "voltage", "speed", "distance",
    "duration", "priority", "revision", "offset", "length", "volume", "torque", "flow", "charge", "angle",
)  # fmt: skip
_UNITS = ("millimetres", "grams", "litres", "seconds", "volts", "pascals", "metres", "degrees")


class Document(Struct, frozen=True):
    """A text whose first words hold its own number, and the `ending` that asks for a continuation."""

    body: str
    ending: str


def document(rng: random.Random, number: int, chars: int) -> Document:
    """A report or a source file, at random, with a body of at least `chars` characters.

    `number` stands in the first words, so that two documents differ from there on.
    """
    make = rng.choice((_report, _source))
    return make(rng, number, chars)


def instructions(rng: random.Random, number: int, chars: int) -> str:
    """What several requests begin with in a service: rules for an assistant, at least `chars` characters."""
    place = rng.choice(_PLACES)
    rules = (
        lambda: f"If the question is about the {rng.choice(_THINGS)}, name the person who {rng.choice(_ACTS)} it.",
        lambda: f"Call the {rng.choice(_THINGS)} {rng.choice(_STATES)} only if the file says so.",
        lambda: f"Reports from {rng.choice(_PLACES)} come on {rng.choice(_DAYS)}; older ones do not count.",
        lambda: f"Answer in {rng.randint(1, 9)} sentences or fewer, and give the number of the file.",
        lambda: f"When {rng.choice(_PEOPLE)} is named, say at which place the {rng.choice(_THINGS)} stands.",
    )
    opening = f"Rules {_dashed(number)} for the assistant of the {place} office.\n"
    return _grow(opening, _numbered(rules, rng), chars)


def _numbered(rules: tuple[Callable[[], str], ...], rng: random.Random) -> Iterator[str]:
    n = 0
    while True:
        n += 1
        yield f"{n}. {rng.choice(rules)()}\n"


def _grow(text: str, more: Iterator[str], chars: int) -> str:
    parts, size = [text], len(text)
    while size < chars:
        part = next(more)
        parts.append(part)
        size += len(part)
    return "".join(parts)


def _dashed(number: int) -> str:
    """A number in groups of three digits: 4120077 as 004-120-077."""
    digits = f"{number:09d}"
    head = len(digits) % 3
    groups = ([digits[:head]] if head else []) + [digits[i : i + 3] for i in range(head, len(digits), 3)]
    return "-".join(groups)


def _report(rng: random.Random, number: int, chars: int) -> Document:
    place = rng.choice(_PLACES)
    people = rng.sample(_PEOPLE, 3)
    things = rng.sample(_THINGS, 4)
    title = f"File {_dashed(number)}, {place}."

    def sentences() -> Iterator[str]:
        while True:
            who, thing, day = rng.choice(people), rng.choice(things), rng.choice(_DAYS)
            yield rng.choice(
                (
                    f" On {day} {who} {rng.choice(_ACTS)} the {thing} at {place}.",
                    f" The {thing} at {place} is {rng.choice(_STATES)}.",
                    f" {who} reports that the {thing} at {place} is {rng.choice(_STATES)}.",
                    f" The next inspection of the {thing} is on {day}, and {who} will be there.",
                    f" The {thing} was {rng.choice(_ACTS)} {rng.randint(2, 9)} times, last by {who} on {day}.",
                    f" {who} asked for {rng.randint(10, 99)} parts for the {thing}.",
                )
            )

    body = _grow(title, sentences(), chars)
    return Document(body, f"\n\nThe same file once more, word for word:\n\nFile {_dashed(number)}, {place}.")


def _source(rng: random.Random, number: int, chars: int) -> Document:
    name = rng.choice(_CLASSES)
    top = f"# {_dashed(number)}: {name.lower()} records\nclass {name}Record:\n"
    names = _field_names(rng)

    def accessor(field: str, unit: str) -> tuple[str, str]:
        head = f"\n    def get_{field}(self) -> int:\n"
        rest = f'        """The {field} of the {name.lower()} in {unit}."""\n        return self._{field}\n'
        setter = (
            f"\n    def set_{field}(self, {field}: int) -> None:\n"
            f'        """Sets the {field} of the {name.lower()} in {unit}."""\n        self._{field} = {field}\n'
        )
        return head, rest + setter

    def methods() -> Iterator[str]:
        while True:
            yield "".join(accessor(next(names), rng.choice(_UNITS)))

    body = _grow(top, methods(), chars)
    return Document(body, accessor(next(names), _UNITS[0])[0])


def _field_names(rng: random.Random) -> Iterator[str]:
    """Field names without a repetition: plain ones first, then with a number behind."""
    round_ = 0
    while True:
        for field in rng.sample(_FIELDS, len(_FIELDS)):
            yield f"{field}_{round_}" if round_ else field
        round_ += 1
