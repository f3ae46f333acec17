#!/usr/bin/env python3
"""Counts the words of files and prints the most frequent ones."""
import argparse
import collections
import pathlib
import re


def words_of(path):
    text = pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    return re.findall(r"[a-z']+", text.lower())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("-n", type=int, default=10, help="how many to print")
    options = parser.parse_args()
    counts = collections.Counter()
    for name in options.files:
        counts.update(words_of(name))
    for word, count in counts.most_common(options.n):
        print(f"{count:8d}  {word}")


if __name__ == "__main__":
    main()
