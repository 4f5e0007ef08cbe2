#!/usr/bin/env python3
"""Writes a book as a batch of longhand: one line for each chapter of the outline below.

    python3 examples/outline.py >book.jsonl

Every chapter waits for the one before it. The model reads the outline, then the last CARRY tokens of the
chapter before, then the heading of the chapter, with which its text begins. So a book of any number of
chapters fits into a context that holds the outline, CARRY tokens and TOKENS tokens.
"""
import json
import sys

TITLE = "The Keeper of Gull Rock"
ABOUT = ("A novel about Ada, who keeps the lighthouse of Gull Rock alone, "
         "and about the ship that her brother sailed on.")
CHAPTERS = [
    "The Lamp", "Ada climbs the stairs on the first night of winter and finds the lamp cold.",
    "A Letter", "The supply boat brings a letter from her brother, a year old.",
    "The Storm", "For three days nobody can leave the tower.",
    "The Boat", "On the morning after, an empty boat lies among the rocks.",
    "The Stranger", "A man who does not give his name asks for a bed.",
    "What the Harbour Says", "Ada rows to the village, and nobody wants to talk about the ship.",
    "The Log Book", "A page is missing from the log of the lighthouse.",
    "The Wreck", "At the lowest tide of the year the ship can be seen.",
    "The Brother", "The stranger tells what he knows.",
    "The Light", "Ada lights the lamp, and someone answers.",
]
TOKENS, CARRY = 600, 400


def lines(tokens=TOKENS, carry=CARRY):
    names, plots = CHAPTERS[::2], CHAPTERS[1::2]
    contents = "".join(f"{i}. {name}. {plot}\n" for i, (name, plot) in enumerate(zip(names, plots), 1))
    for i, name in enumerate(names, 1):
        heading = f"Chapter {i}: {name}\n\n"
        line = {"custom_id": f"ch{i}", "prompt": f"{TITLE}\n\n{ABOUT}\n\n{contents}\n", "max_tokens": tokens}
        if i == 1:
            line["prompt"] += heading
        else:
            line |= {"after": f"ch{i - 1}", "carry": carry, "append": f"\n\n{heading}"}
        yield line


if __name__ == "__main__":
    for line in lines(*map(int, sys.argv[1:])):      # other TOKENS and CARRY
        print(json.dumps(line, ensure_ascii=False))
