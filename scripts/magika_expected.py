#!/usr/bin/env python3
"""Writes examples/expected.tsv: what each file of examples/files is, and what ONNX Runtime answers.

    python3 scripts/magika_expected.py    (needs onnxruntime and numpy)

Columns: file, its true kind (by its name, below), ONNX Runtime's answer, its score.
"""
import pathlib
import sys

import numpy
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILES = ROOT / "examples" / "files"
SPACE = b" \t\n\v\f\r"
KINDS = {
    ".c": "c", ".cpp": "cpp", ".py": "python", ".sh": "shell", ".pl": "perl", ".html": "html", ".css": "css",
    ".js": "javascript", ".ts": "typescript", ".json": "json", ".yaml": "yaml", ".xml": "xml", ".md": "markdown",
    ".ini": "ini", ".toml": "toml", ".sql": "sql", ".java": "java", ".go": "go", ".rs": "rust", ".rb": "ruby",
    ".php": "php", ".lua": "lua", ".diff": "diff", ".tex": "latex", ".hs": "haskell", ".kt": "kotlin",
    ".swift": "swift", ".cs": "cs", ".ps1": "powershell", ".bat": "batch", ".v": "verilog", ".proto": "proto",
    ".srt": "srt", ".eml": "eml", ".ics": "ics", ".svg": "svg", ".csv": "csv", ".asm": "asm", ".ipynb": "ipynb",
    ".gz": "gzip", ".bz2": "bzip", ".xz": "xz", ".zip": "zip", ".tar": "tar", ".png": "png", ".bmp": "bmp",
    ".gif": "gif", ".wav": "wav", ".sqlite": "sqlite", ".pdf": "pdf",
}
NAMES = {"Makefile": "makefile", "Dockerfile": "dockerfile", "CMakeLists.txt": "cmake"}


def features(content):
    begin = content[:4096].lstrip(SPACE)[:1024]
    end = content[-4096:].rstrip(SPACE)[-1024:]
    row = [*begin] + [256] * (1024 - len(begin)) + [256] * (1024 - len(end)) + [*end]
    return numpy.array([row], dtype=numpy.int32)


def main():
    labels = (ROOT / "models" / "magika" / "labels.txt").read_text().split()
    session = onnxruntime.InferenceSession(str(ROOT / "models" / "magika" / "1" / "model.onnx"))
    rows = []
    for path in sorted(FILES.iterdir()):
        scores = session.run(None, {"bytes": features(path.read_bytes())})[0][0]
        best = int(scores.argmax())
        kind = NAMES.get(path.name) or KINDS[path.suffix]
        rows.append(f"{path.name}\t{kind}\t{labels[best]}\t{scores[best]:.9f}")
        if labels[best] != kind:
            print("differs:", rows[-1], file=sys.stderr)
    (ROOT / "examples" / "expected.tsv").write_text("\n".join(rows) + "\n")


main()
