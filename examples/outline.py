#!/usr/bin/env python3
"""Writes a book as a batch of longhand: one line for each chapter of the outline below.

    python3 examples/outline.py >book.jsonl

Every chapter waits for the one before it. A line is a chat: the model reads the last CARRY tokens of the
chapter before, as its own words, and then the request for this chapter. So a book of any number of chapters
fits into a context that holds CARRY tokens, a request and a chapter. The request has the sentence with which
the chapter begins and what must not be forgotten. A small model writes down whatever list it is shown, so it
is never shown the whole outline."""
import json
import sys

ABOUT = "Ada keeps the lighthouse of Gull Rock alone, and her brother is a sailor who has not come home."
CHAPTERS = [
    "On the first night of winter Ada climbed the stairs of the lighthouse and found the lamp cold.",
    "In the morning the supply boat brought Ada a letter from her brother, and the letter was a year old.",
    "The storm began at noon, and for three days Ada could not leave the tower.",
    "On the morning after the storm Ada found an empty boat among the rocks.",
    "That evening a man who did not give his name knocked at the door and asked Ada for a bed.",
    "Ada rowed to the village and asked about her brother's ship, and nobody wanted to talk about it.",
    "Back in the tower, Ada opened the log of the lighthouse and saw that a page was missing.",
    "At the lowest tide of the year Ada walked out to the wreck of the ship.",
    "The stranger put down his cup and told Ada what he knew about her brother.",
    "On the last night of winter Ada lit the lamp, and far out at sea another light answered.",
]
SHORTEST, LONGEST, CARRY = 300, 1500, 120


def lines(shortest=SHORTEST, longest=LONGEST, carry=CARRY):
    for i, begin in enumerate(CHAPTERS, 1):
        request = f"Write a long story that begins like this: {begin} {ABOUT}"
        line = {"custom_id": f"ch{i}", "messages": [{"role": "user", "content": request}],
                "min_tokens": shortest, "max_tokens": longest}
        if i > 1:
            line |= {"after": f"ch{i - 1}", "carry": carry}
        yield line


if __name__ == "__main__":
    for line in lines(*map(int, sys.argv[1:])):      # other SHORTEST, LONGEST and CARRY
        print(json.dumps(line, ensure_ascii=False))
