"""Every file and folder that a page names exists.

A name counts as a path when it stands in backquotes and ends as a source file does, or when it is
the target of a link.  Pages shorten paths to what is clear from the context, so a path is right
when the tree holds one that ends with it; `*` and `{a,b}` are understood as the shell does.
"""
import fnmatch
import itertools
import os
import re
import sys
import unittest

ROOT = sys.argv.pop(1)
SOURCE = re.compile(r"[\w.*{},/+-]*[\w*}]\.(?:\{[\w,]+\}|c|h|cu|cuh|def|py|sh|md|inc|cmake|toml|txt|yml)")
# What is somebody else's, and pages that are an example's data.
ELSEWHERE = ("torch/",)
DATA = "examples/files/"
SKIPPED = re.compile(r"(build.*|\..*|shared|__pycache__|node_modules)$")


def tree(root):
    """The files below root, as paths from it."""
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not SKIPPED.match(name)]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in files]
    return found


def spelled_out(path):
    """The paths that braces stand for."""
    parts = [part[1:-1].split(",") if part.startswith("{") else [part]
             for part in re.split(r"(\{[^}]*\})", path)]
    return ["".join(choice) for choice in itertools.product(*parts)]


def named_sources(text):
    """The backquoted source files of a page; code blocks hold commands of all kinds and are left out."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    words = [word for span in re.findall(r"`([^`\n]+)`", prose) for word in span.split()]
    return [path for word in words
            if SOURCE.fullmatch(word) and not word.startswith(ELSEWHERE) for path in spelled_out(word)]


class Paths(unittest.TestCase):
    def setUp(self):
        self.files = tree(ROOT)
        self.pages = {}
        for page in self.files:
            if not page.endswith(".md") or page.startswith(DATA):
                continue
            with open(os.path.join(ROOT, page), encoding="utf-8") as opened:
                self.pages[page] = opened.read()
        self.assertTrue(self.pages)

    def exists(self, path):
        path = re.sub(r"^(\.\.?/)+", "", path)
        return any(fnmatch.fnmatchcase("/" + name, "*/" + path) for name in self.files)

    def test_every_source_file_named_in_a_page_exists(self):
        named = [(page, path) for page, text in self.pages.items() for path in named_sources(text)]
        self.assertTrue(named)
        self.assertEqual([], [one for one in named if not self.exists(one[1])])

    def test_every_link_between_pages_leads_somewhere(self):
        missing = []
        for page, text in self.pages.items():
            for target in re.findall(r"\]\(([^)#\s]+)", text):
                if "://" in target:
                    continue
                if not os.path.exists(os.path.join(ROOT, os.path.dirname(page), target)):
                    missing.append((page, target))
        self.assertEqual([], missing)

    def test_every_folder_of_the_daemon_is_named_in_a_page(self):
        pages = "\n".join(self.pages.values())
        folders = {os.path.dirname(path) for path in self.files if path.startswith("daemon/")}
        unnamed = [folder for folder in sorted(folders)
                   if not re.search(rf"(?<![\w-]){re.escape(os.path.basename(folder))}/", pages)]
        self.assertEqual([], unnamed)


if __name__ == "__main__":
    unittest.main()
