"""Writes reasoning.jsonl: numeric problems from templates, each answer computed and checked a second way.

    python evalsets/make_reasoning.py            writes the file beside this script
    python evalsets/make_reasoning.py --stdout   prints it

The seed is fixed, so the same bytes come out on every Python from 3.10 on. A template draws its numbers, states the
problem, computes the answer, and checks it by another road (a search, a loop, an inverse); a draw that fails its
check ends the script.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations
from pathlib import Path

SEED = 20240229
PER_TEMPLATE = 8
ASK = " Think briefly, then end with 'Answer: ' and the number."

Problem = tuple[str, int, bool]  # the question, the answer, whether the second way agrees
NAMES = ("Mara", "Tom", "Ines", "Jonas", "Lena", "Omar", "Yuki", "Rosa", "Paul", "Nadia")
THINGS = ("apples", "stamps", "marbles", "pencils", "cards", "shells", "coins", "books")


def basket(r: random.Random) -> Problem:
    a, b, p, q = r.randint(2, 9), r.randint(2, 9), r.randint(2, 12), r.randint(2, 12)
    total = a * p + b * q
    return (
        f"A notebook costs {p} euros and a folder costs {q} euros. How many euros do {a} notebooks and {b} folders cost?",
        total,
        total == sum([p] * a) + sum([q] * b),
    )


def change(r: random.Random) -> Problem:
    price, count = r.randint(3, 9), r.randint(3, 9)
    paid = (price * count // 50 + 1) * 50
    left = paid - price * count
    return (
        f"{r.choice(NAMES)} buys {count} tickets at {price} euros each and pays with {paid} euros. "
        "How many euros of change are due?",
        left,
        left + sum([price] * count) == paid,
    )


def give_and_take(r: random.Random) -> Problem:
    start, gone, came, factor = r.randint(20, 60), r.randint(3, 15), r.randint(4, 25), r.randint(2, 4)
    end = (start - gone + came) * factor
    return (
        f"{r.choice(NAMES)} has {start} {r.choice(THINGS)}, loses {gone}, finds {came}, and then has {factor} times as many "
        "as at that moment. How many are there at the end?",
        end,
        end % factor == 0 and end // factor - came + gone == start,
    )


def remainder(r: random.Random) -> Problem:
    size, people = r.randint(6, 14), r.randint(60, 200)
    groups = -(-people // size)
    return (
        f"A boat carries {size} people. How many trips are needed to bring {people} people across?",
        groups,
        (groups - 1) * size < people <= groups * size,
    )


def percent(r: random.Random) -> Problem:
    share, whole = r.choice((5, 10, 15, 20, 25, 30, 40, 60, 75)), r.randint(3, 30) * 20
    part = whole * share // 100
    return f"What is {share} % of {whole}?", part, Fraction(share, 100) * whole == part


def discount(r: random.Random) -> Problem:
    off, price = r.choice((10, 20, 25, 30, 40, 50)), r.randint(2, 25) * 20
    end = price - price * off // 100
    return (
        f"A coat costs {price} euros and is sold with {off} % off. How many euros is the reduced price?",
        end,
        Fraction(100 - off, 100) * price == end,
    )


def speed(r: random.Random) -> Problem:
    v, half_hours = r.randint(2, 12) * 10, r.randint(3, 11)
    way = v * half_hours // 2
    hours, extra = divmod(half_hours, 2)
    time = f"{hours} hours" + (" and 30 minutes" if extra else "")
    return f"A bus drives at {v} km/h for {time}. How many km does it cover?", way, Fraction(half_hours, 2) * v == way


def meeting(r: random.Random) -> Problem:
    a, b, hours = r.randint(3, 9) * 10, r.randint(3, 9) * 10, r.randint(2, 6)
    gap = (a + b) * hours
    return (
        f"Two trains {gap} km apart drive towards each other, one at {a} km/h and one at {b} km/h. "
        "After how many hours do they meet?",
        hours,
        next(h for h in range(1, 100) if a * h + b * h >= gap) == hours,
    )


def ages(r: random.Random) -> Problem:
    young, gap, later = r.randint(4, 15), r.randint(3, 20), r.randint(2, 12)
    total = young + young + gap + 2 * later
    one, other = r.sample(NAMES, 2)
    return (
        f"{one} is {young} years old and {other} is {gap} years older. What will be the sum of their ages in {later} years?",
        total,
        total == (young + later) + (young + gap + later),
    )


def sum_and_difference(r: random.Random) -> Problem:
    x, y = sorted(r.sample(range(5, 80), 2))
    found = [b for a, b in combinations(range(1, 200), 2) if a + b == x + y and b - a == y - x]
    return (
        f"The sum of two numbers is {x + y} and their difference is {y - x}. What is the larger number?",
        y,
        found == [y],
    )


def linear(r: random.Random) -> Problem:
    x, a, b = r.randint(2, 20), r.randint(2, 12), r.randint(1, 40)
    return (
        f"Solve for x: {a} * x + {b} = {a * x + b}. What is x?",
        x,
        [k for k in range(-100, 101) if a * k + b == a * x + b] == [x],
    )


def rectangle(r: random.Random) -> Problem:
    a, b = r.randint(3, 20), r.randint(3, 20)
    return (
        f"A rectangle has a perimeter of {2 * (a + b)} cm and one side of {a} cm. What is its area in square cm?",
        a * b,
        sum(1 for _ in range(a) for _ in range(b)) == a * b,
    )


def box(r: random.Random) -> Problem:
    a, b, c = (r.randint(2, 9) for _ in range(3))
    surface = 2 * (a * b + b * c + a * c)
    return (
        f"A box is {a} cm long, {b} cm wide and {c} cm high. What is the total area of its six faces in square cm?",
        surface,
        surface == 2 * a * (b + c) + 2 * b * c,
    )


def common_divisor(r: random.Random) -> Problem:
    g, x, y = r.randint(2, 15), r.randint(2, 9), r.randint(2, 9)
    a, b = g * x, g * (y + x)
    best = max(d for d in range(1, a + 1) if a % d == 0 and b % d == 0)
    return f"What is the greatest common divisor of {a} and {b}?", math.gcd(a, b), best == math.gcd(a, b)


def common_multiple(r: random.Random) -> Problem:
    a, b = r.randint(4, 15), r.randint(4, 15)
    lcm = a * b // math.gcd(a, b)
    return (
        f"Two lights flash together now, one every {a} seconds and one every {b} seconds. "
        "After how many seconds do they next flash together?",
        lcm,
        next(k for k in range(1, 1000) if k % a == 0 and k % b == 0) == lcm,
    )


def modulo(r: random.Random) -> Problem:
    n, m = r.randint(200, 3000), r.randint(7, 29)
    rest = n
    while rest >= m:
        rest -= m
    return f"What is the remainder when {n} is divided by {m}?", n % m, rest == n % m


def series(r: random.Random) -> Problem:
    first, step, count = r.randint(1, 12), r.randint(2, 9), r.randint(5, 12)
    total = count * (2 * first + (count - 1) * step) // 2
    return (
        f"A hall has {count} rows. The first row has {first} seats, and each next row has {step} seats more than the one "
        "before. How many seats are there in all?",
        total,
        total == sum(range(first, first + count * step, step)),
    )


def growth(r: random.Random) -> Problem:
    start, factor, days = r.randint(2, 9), r.choice((2, 3)), r.randint(3, 6)
    now = start
    for _ in range(days):
        now *= factor
    return (
        f"A culture of {start} cells grows to {factor} times its number every day. How many cells are there after {days} days?",
        start * factor**days,
        now == start * factor**days,
    )


def working_together(r: random.Random) -> Problem:
    workers, days, others = r.choice(((4, 6, 3), (6, 10, 5), (5, 12, 4), (8, 9, 6), (3, 14, 7), (10, 6, 4), (9, 8, 12)))
    needed = workers * days // others
    return (
        f"{workers} equal workers finish a job in {days} days. How many days do {others} such workers need for it?",
        needed,
        needed * others == workers * days,
    )


def choosing(r: random.Random) -> Problem:
    n, k = r.randint(4, 9), r.choice((2, 3))
    return (
        f"In how many ways can a team of {k} be chosen from {n} people?",
        math.comb(n, k),
        sum(1 for _ in combinations(range(n), k)) == math.comb(n, k),
    )


def overlap(r: random.Random) -> Problem:
    both, only_a, only_b, none = r.randint(2, 12), r.randint(3, 15), r.randint(3, 15), r.randint(1, 9)
    everyone = both + only_a + only_b + none
    return (
        f"Of {everyone} children, {both + only_a} play chess, {both + only_b} play football and {none} play neither. "
        "How many play both?",
        both,
        (both + only_a) + (both + only_b) - (everyone - none) == both,
    )


def mean(r: random.Random) -> Problem:
    m = r.randint(20, 60)
    known = [m + r.randint(-9, 9) for _ in range(4)]
    last = 5 * m - sum(known)
    return (
        f"The mean of five numbers is {m}. Four of them are {', '.join(map(str, known))}. What is the fifth?",
        last,
        sum([*known, last]) == 5 * m,
    )


# level, template: how many steps a solver needs, from one to several
TEMPLATES: tuple[tuple[int, Callable[[random.Random], Problem]], ...] = (
    (1, basket), (1, change), (1, percent), (1, modulo), (2, give_and_take), (2, remainder), (2, discount), (2, speed),
    (2, ages), (3, linear), (3, sum_and_difference), (3, rectangle), (3, mean), (3, meeting), (4, common_divisor),
    (4, common_multiple), (4, box), (4, growth), (5, series), (5, working_together), (5, choosing), (5, overlap),
)  # fmt: skip


def lines() -> Iterator[str]:
    """The file's lines. Raises ArithmeticError if an answer fails its check."""
    for level, template in TEMPLATES:
        rng = random.Random(f"{SEED} {template.__name__}")
        seen: set[str] = set()
        tries = 0
        while len(seen) < PER_TEMPLATE and tries < 1000:
            tries += 1
            question, answer, agrees = template(rng)
            if not agrees:
                raise ArithmeticError(f"{template.__name__}: {question} -> {answer} fails its check")
            if question in seen:
                continue
            seen.add(question)
            row = {
                "id": f"{template.__name__}-{len(seen)}",
                "prompt": question + ASK,
                "answer": answer,
                "scorer": "number",
                "tags": [f"level-{level}", template.__name__.replace("_", "-")],
            }
            yield json.dumps(row, ensure_ascii=False)


if __name__ == "__main__":
    text = "".join(line + "\n" for line in lines())
    if "--stdout" in sys.argv:
        sys.stdout.write(text)
    else:
        Path(__file__).with_name("reasoning.jsonl").write_text(text, encoding="utf-8")
