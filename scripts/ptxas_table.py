#!/usr/bin/env python3
"""Registers, spills and shared memory of every CUDA kernel on each architecture.

    ptxas_table.py --write            compiles all kernels and writes tests/sim/ptxas.txt
    ptxas_table.py --write pool.cu …  these alone; the other rows stay (headers that others share did not change)
    ptxas_table.py --check [--arch 75 …]   compares with what is written; exit status 1 shows rows

The numbers are ptxas' own (nvcc -Xptxas -v) with the flags of a build for use; another release of
the toolkit gives others, so a check by one only says so (exit status 77, "skipped").
"""
import argparse
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KERNELS = os.path.join(ROOT, "daemon/device/cuda/kernels")
TABLE = os.path.join(ROOT, "tests/sim/ptxas.txt")
ARCHITECTURES = ["75", "80", "86", "89", "90", "100", "120"]  # cmake/cuda.cmake's


def version_of(nvcc):
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"V(\d+\.\d+\.\d+)", text).group(1)


def compile_file(nvcc, source, architectures):
    command = [nvcc, "-std=c++17", "-O3", "-cubin" if len(architectures) == 1 else "-c",
               "-Xptxas", "-v", "-o", "/dev/null", "-I", os.path.join(ROOT, "daemon"), source]
    if os.path.basename(source) == "pointwise.cu":
        command.insert(1, "-fmad=false")
    for arch in architectures:
        command[1:1] = ["-gencode", f"arch=compute_{arch},code=sm_{arch}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{source}: {done.stderr}")
    return done.stderr


def short_name(mangled):
    """pointwise_kernel<float>: without the arguments, which are one struct."""
    text = subprocess.run(["c++filt", mangled], capture_output=True, text=True, check=True).stdout
    text = re.sub(r"^void ", "", text.strip())
    return re.sub(r"\([^()]*\)$", "", text)


def rows_of(text):
    """{(kernel, arch): (registers, spilled bytes, shared bytes, stack bytes)}"""
    rows, key, stack, spills = {}, None, 0, 0
    for line in text.splitlines():
        entry = re.search(r"Compiling entry function '(\S+)' for 'sm_(\d+)a?'", line)
        frame = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores", line)
        used = re.search(r"Used (\d+) registers", line)
        if entry:
            key = (short_name(entry.group(1)), entry.group(2))
        elif frame and key:
            stack, spills = int(frame.group(1)), int(frame.group(2))
        elif used and key:
            shared = re.search(r"(\d+) bytes smem", line)
            rows[key] = (int(used.group(1)), spills, int(shared.group(1)) if shared else 0, stack)
            key = None
    return rows


def measure(nvcc, architectures, names=None):
    rows = {}
    for name in names or sorted(os.listdir(KERNELS)):
        if name.endswith(".cu"):
            text = compile_file(nvcc, os.path.join(KERNELS, name), architectures)
            rows.update({(name[:-3], *key): value for key, value in rows_of(text).items()})
    return rows


def write(rows, version):
    with open(TABLE, "w", encoding="utf-8") as out:
        out.write(f"# By scripts/ptxas_table.py --write, nvcc {version}.\n"
                  "# registers/spilled bytes/shared bytes/stack bytes; a spill deserves a look.\n")
        kernels = sorted({key[:2] for key in rows})
        out.write(f"{'file':14}{'kernel':40}" + "".join(f"{'sm_' + a:>19}" for a in ARCHITECTURES))
        out.write("\n")
        for file, kernel in kernels:
            cells = ("/".join(map(str, rows[file, kernel, a])) if (file, kernel, a) in rows else "-"
                     for a in ARCHITECTURES)
            out.write(f"{file:14}{kernel:40}" + "".join(f"{cell:>19}" for cell in cells) + "\n")


def read():
    rows, version = {}, ""
    with open(TABLE, encoding="utf-8") as table:
        for line in table:
            if line.startswith("#"):
                found = re.search(r"nvcc (\S+?)\.?$", line.strip())
                version = found.group(1) if found else version
                continue
            words = re.split(r"\s{2,}|(?<=\S)\s+(?=\d+/)", line.rstrip())
            if words[0] == "file":
                continue
            for arch, cell in zip(ARCHITECTURES, words[2:]):
                if cell != "-":
                    rows[words[0], words[1], arch] = tuple(map(int, cell.split("/")))
    return rows, version


def check(nvcc, architectures):
    written, version = read()
    if version_of(nvcc) != version:
        print(f"the table is nvcc {version}'s, this is {version_of(nvcc)}")
        return 77
    wanted = {key: value for key, value in written.items() if key[2] in architectures}
    found = measure(nvcc, architectures)
    for key in sorted(wanted.keys() | found.keys()):
        if wanted.get(key) != found.get(key):
            print(f"{key[0]} {key[1]} sm_{key[2]}: {found.get(key)}, the table has {wanted.get(key)}")
    return 0 if wanted == found else 1


def rewrite(nvcc, names):
    """Only the rows of some files."""
    rows, version = read()
    if version_of(nvcc) != version:
        sys.exit(f"the table is nvcc {version}'s, this is {version_of(nvcc)}: write all of it")
    kept = {key: value for key, value in rows.items() if key[0] + ".cu" not in names}
    write(kept | measure(nvcc, ARCHITECTURES, names), version)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", nargs="*", metavar="FILE.cu")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--arch", nargs="+", default=ARCHITECTURES, choices=ARCHITECTURES)
    options = parser.parse_args()
    if options.write:
        rewrite(options.nvcc, options.write)
    elif options.write is not None:
        write(measure(options.nvcc, ARCHITECTURES), version_of(options.nvcc))
    return check(options.nvcc, options.arch) if options.check else 0


if __name__ == "__main__":
    sys.exit(main())
