#!/usr/bin/env python3
"""Sows mistakes into the plug-in's own sources, one at a time, and runs the test that must find it.

    mutants.py BUILD [--part I/N] [WORD ...]      WORD: only mistakes with it in their names

A mistake is a text of a file and what stands there instead.  The file is compiled as the build compiles it
and linked with the build's other objects; the test's program runs on the simulated device with that plug-in
and must fail with the words that are expected: of the simulator, or of the test where numbers are wrong.
A text that is no longer there, or there twice, is a failure too: the table goes with the sources.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CUDA = "daemon/device/cuda"
KERNELS = f"{CUDA}/kernels"
SYNC = "__syncthreads();\n"
RACE = "race in shared memory|never written"
BOUNDS = "invalid global (read|write)"
WRONG = r"found .*, expected|Failure!"  # a wrong number, by the operators' tester or an assertion
NEVER = "never written"
LEFT = r"assert_nothing_left|open|FAILED"

# (class, file, text, instead, test's program, what is said, {environment})
MUTANTS = [
    # Attention: in the products of scores, behind them, and where the parts are read.
    ("barrier", "attention.cu", "a.depth, k);\n        " + SYNC, "a.depth, k);\n", "attention", RACE),
    ("barrier", "attention.cu", "rows, columns);\n        }\n        " + SYNC, "rows, columns);\n        }\n",
     "attention", RACE),
    ("barrier", "attention.cu", "key + at, v);\n                " + SYNC, "key + at, v);\n", "attention", RACE),
    ("barrier", "attention.cu", "                    }\n                }\n                " + SYNC,
     "                    }\n                }\n", "attention", RACE),
    ("off by one", "attention.cu", "to[d][c] = key + d < a.keys", "to[d][c] = key + d <= a.keys", "attention", BOUNDS),
    ("off by one", "attention.cu", "scores[i] = column < a.keys", "scores[i] = column <= a.keys", "attention", WRONG),
    ("off by one", "attention.cu", "key < end; key += SIDE", "key + 1 < end; key += SIDE", "attention", WRONG),
    ("stride", "attention.cu", "row * a.mask[m].row + column", "row * a.keys + column", "attention", f"{BOUNDS}|{WRONG}"),
    ("stride", "attention.cu", "(row + r) * operand.row +", "(row + r) * depths +", "attention", f"{BOUNDS}|{WRONG}"),
    ("row without keys", "attention.cu", "base = top == -INFINITY ? 0.0f : top;", "base = top;", "attention", WRONG),

    # The same by tensor cores: copies that go on, fragments.
    ("wait", "attention16.cu", "            copies_wait();\n            __syncthreads(); /* K is there", "            __syncthreads(); /* K is there",
     "attention", RACE),
    ("wait", "attention16.cu", "            copies_wait();\n            __syncthreads(); /* V is there", "            __syncthreads(); /* V is there",
     "attention", RACE),
    ("barrier", "attention16.cu", "__syncthreads(); /* K is there", "/* K is there", "attention", RACE),
    ("barrier", "attention16.cu", "__syncthreads(); /* V is there", "/* V is there", "attention", RACE),
    ("fragment", "attention16.cu", "+ lane / 8 % 2 * 8]);", "+ lane / 16 * 8]);", "attention", WRONG),
    ("fragment", "attention16.cu", "tensor_load_turned(b,", "tensor_load(b,", "attention", WRONG),
    ("fragment", "attention16.cu", "place.row + group() + i % 2 * 8,", "place.row + group() + i / 2 * 8,", "attention",
     WRONG),
    ("fragment", "tensor.cuh", '"r"(a[2 * half]), "r"(a[2 * half + 1])', '"r"(a[half]), "r"(a[half + 2])', "attention", WRONG,
     {"SLUICE_SIM_CAPABILITY": "75"}),
    ("off by one", "attention16.cu", "if (column >= left)", "if (column > left)", "attention", f"{BOUNDS}|{WRONG}"),
    ("off by one", "attention16.cu", "+ i % 2 >= left)", "+ i % 2 > left)", "attention", WRONG),
    ("off by one", "attention16.cu", "row + i * STEP < left && column < columns", "row + i * STEP <= left && column < columns",
     "attention", f"{BOUNDS}|{WRONG}|{NEVER}"),
    ("stride", "attention16.cu", "mask += 8 * a.mask[m].row;", "mask += 8 * a.keys;", "attention", f"{BOUNDS}|{WRONG}"),
    ("choice", "attention.cu", "[at] != 0) == (a.hides", "[at] != 0) != (a.hides", "attention", WRONG),
    ("choice", "attention16.cu", "[column] != 0) == (a.hides", "[column] != 0) != (a.hides", "attention", WRONG),
    ("causal", "attention.cu", "column > row + a.causal_offset", "column >= row + a.causal_offset", "attention", WRONG),
    ("causal", "attention16.cu", "+ i % 2 >= seen)", "+ i % 2 > seen)", "attention", WRONG),
    ("causal", "attention.cuh", "end = last + a.causal_offset;", "end = last + a.causal_offset - 64;", "attention",
     WRONG),
    ("hidden keys", "attention.cuh", "return a.causal_fill > -INFINITY &&", "return a.causal_fill > INFINITY &&",
     "attention", WRONG),
    ("hidden keys", "attention.cuh", "? 0 : a.keys;", "? 0 : 0;", "attention", WRONG),
    ("wide heads", "attention16.cu", "t % across * WIDE;", "t % across * DEEP;", "attention", f"{BOUNDS}|{WRONG}|{NEVER}"),
    ("wide heads", "attention16.cu", "column * a.v.column,", "0 * column,", "attention", WRONG),

    ("barrier", "move.cu", "m.column_from + row + x];\n        " + SYNC, "m.column_from + row + x];\n", "movement", RACE),
    ("barrier", "move.cu", "tile[x][k];\n        " + SYNC, "tile[x][k];\n", "movement", RACE),
    ("off by one", "move.cu", "column + k < m.columns && row + x < m.rows", "column + k <= m.columns && row + x < m.rows",
     "movement", BOUNDS),
    ("off by one", "move.cu", "if (i >= 0 && i < kept)", "if (i >= 0 && i <= kept)", "slice", f"{BOUNDS}|{WRONG}"),
    ("stride", "move.cu", "to[(row + k) * m.row_to +", "to[(row + k) * m.columns * 2 +", "movement", f"{BOUNDS}|{WRONG}"),

    # What reductions, softmax and normalisations share.
    ("barrier", "lines.cuh", "shared[threadIdx.x] = value;\n    " + SYNC, "shared[threadIdx.x] = value;\n", "norm", RACE),
    ("barrier", "lines.cuh", "step * place.unit]);\n        " + SYNC, "step * place.unit]);\n", "norm", RACE),
    ("barrier", "lines.cuh", "place.worker * place.unit];\n    " + SYNC, "place.worker * place.unit];\n", "norm", RACE),
    ("off by one", "lines.cuh", "j < (lines).reduced.count;", "j <= (lines).reduced.count;", "norm", f"{BOUNDS}|{WRONG}"),
    ("stride", "normalize.cu", "walk_offset(n.lines.kept, n.scale_kept, kept)", "kept", "norm", f"{BOUNDS}|{WRONG}"),
    ("barrier", "reduce.cu", "shared[threadIdx.x] = total;\n        " + SYNC, "shared[threadIdx.x] = total;\n",
     "reduce", RACE),
    ("off by one", "reduce.cu", "const int64_t to = from + part < count ? from + part : count;",
     "const int64_t to = from + part;", "reduce", f"{BOUNDS}|{WRONG}"),
    ("stride", "reduce.cu", "sum_place<T>(s, j) * s.lines.in_reduced.of[0]", "sum_place<T>(s, j)", "reduce", WRONG),

    ("barrier", "product.cu", "place, a, b);\n            " + SYNC, "place, a, b);\n", "matmul", RACE),
    ("barrier", "product.cu", "(SIDE / CELL)];\n            " + SYNC, "(SIDE / CELL)];\n", "matmul", RACE),
    ("off by one", "product.cu", "if (m >= p.m || k >= p.k)", "if (m >= p.m || k > p.k)", "matmul", f"{BOUNDS}|{WRONG}"),
    ("stride", "product.cu", "base + m * p.a_m + k * p.a_k);", "base + m * p.k + k * p.a_k);", "matmul",
     f"{BOUNDS}|{WRONG}"),
    ("barrier", "quantized.cu", "n + x, place);\n            }\n            " + SYNC, "n + x, place);\n            }\n",
     "quantized", RACE),
    ("barrier", "quantized.cu", "b[d][x]);\n            " + SYNC, "b[d][x]);\n", "quantized", RACE),
    ("off by one", "quantized.cu", "if (k >= p.k || n >= p.n)", "if (k > p.k || n >= p.n)", "quantized",
     f"{BOUNDS}|{WRONG}"),
    ("off by one", "quantized.cu", "for (int64_t k = 0; k < p.k; k++)", "for (int64_t k = 1; k < p.k; k++)", "quantized",
     WRONG),
    ("rounding", "quantized.cuh", "f.bias != nullptr)", "f.bias == nullptr && f.shift != nullptr)", "quantized", WRONG),
    ("off by one", "imma.cu", "        if (k + i < l.k)", "        if (k + i <= l.k)", "cublaslt", BOUNDS),
    ("off by one", "imma.cu", "++channel == l.channels.by", "channel++ == l.channels.by", "quantized",
     f"{BOUNDS}|{WRONG}"),
    ("zero point", "imma.cu", "cell < 0 ? zero : from", "cell < 0 ? 0 : from", "quantized", WRONG),
    ("barrier", "imma.cu", "column + x];\n        " + SYNC, "column + x];\n", "quantized", RACE),
    ("barrier", "imma.cu", "x_zero);\n        }\n        " + SYNC, "x_zero);\n        }\n", "quantized", RACE),
    ("stride", "imma.cu", "f.sums[row * f.n_padded + f.n]", "f.sums[row * f.n_padded + f.n - 1]", "cublaslt", WRONG),
    ("stride", "imma.cu", "place * f.out_row + column * f.out_column", "place + column * f.out_column", "quantized",
     f"{BOUNDS}|{WRONG}"),
    ("ones", "../blas/bytes.c", "if (packing->has_zeros)\n", "if (!packing->has_zeros)\n", "cublaslt", WRONG),
    ("pieces", "../blas/bytes.c", "first + count < state->rows ? 0 : 1", "first + count < state->rows ? 1 : 0",
     "cublaslt", f"{NEVER}|{WRONG}"),
    ("alignment", "../blas/bytes.c", "LINE = 16,", "LINE = 2, ", "cublaslt", "no multiple of 4"),
    ("stride", "bytes.cu", "p.b, at[2], b_zero", "p.b, at[1], b_zero", "qlinear", f"{BOUNDS}|{WRONG}"),
    ("barrier", "bytes.cu", "t.table[i];\n    " + SYNC, "t.table[i];\n", "qlinear", RACE),
    ("off by one", "bytes.cu", "i < ENTRIES; i += blockDim.x", "i < ENTRIES - 1; i += blockDim.x", "qlinear",
     f"{NEVER}|{WRONG}"),
    ("off by one", "bytes.cu", "i = first; i < a.cells", "i = first; i <= a.cells", "qlinear", f"{BOUNDS}|{WRONG}"),
    ("stride", "bytes.cu", "i % a.channels;", "i;", "qlinear", f"{BOUNDS}|{WRONG}"),
    ("stride", "quantized.cu", "q.scale, at)", "q.scale, at * 2)", "quantize", f"{BOUNDS}|{WRONG}"),

    ("off by one", "ml.cu", "k < l.x.features; k++", "k <= l.x.features; k++", "ml", f"{BOUNDS}|{WRONG}"),
    ("stride", "ml.cu", "target * l.x.features;", "target * l.targets;", "ml", f"{BOUNDS}|{WRONG}"),
    ("stride", "ml.cu", "feature = i % s.x.features;", "feature = i % s.x.rows;", "ml", f"{BOUNDS}|{WRONG}"),
    ("order", "ml.cu", "scores[i] > scores[best]", "scores[i] < scores[best]", "ml", WRONG),

    ("barrier", "topk.cu", "entries[b] = moved;\n                }\n            }\n            " + SYNC,
     "entries[b] = moved;\n                }\n            }\n", "indexing", RACE),
    ("barrier", "topk.cu", "1u);\n        }\n        " + SYNC, "1u);\n        }\n", "indexing", RACE),
    ("barrier", "topk.cu", "search.with_it = count;\n        }\n        " + SYNC, "search.with_it = count;\n        }\n",
     "indexing", RACE),
    ("off by one", "topk.cu", "up_to >= *wanted)", "up_to > *wanted)", "indexing", f"{WRONG}|{BOUNDS}|{NEVER}"),
    ("ties", "topk.cu", "entry.key > key || by_place{key}(entry) >= place", "entry.key >= key || place == 0", "indexing",
     f"{WRONG}|invalid shared"),
    ("off by one", "topk.cu", "i < t.length ? key_of", "i <= t.length ? key_of", "indexing", f"{BOUNDS}|{WRONG}"),
    ("stride", "topk.cu", "? key_of(t, start + i * t.inner) : 0;", "? key_of(t, start + i) : 0;", "indexing", WRONG),

    ("barrier", "scan.cuh", "shared[threadIdx.x] = value;\n    " + SYNC, "shared[threadIdx.x] = value;\n", "counted", RACE),
    ("barrier", "scan.cuh", "threadIdx.x - step] : 0;\n\n        " + SYNC, "threadIdx.x - step] : 0;\n", "counted", RACE),
    ("off by one", "select.cu", "if (part * SELECT_PART + i < s.count)", "if (part * SELECT_PART + i <= s.count)",
     "counted", BOUNDS),
    ("stride", "select.cu", "n.out[axis * total + number]", "n.out[axis * n.selected.count + number]", "counted",
     f"{BOUNDS}|{WRONG}"),
    ("barrier", "nms.cu", "shared[threadIdx.x] = key;\n    " + SYNC, "shared[threadIdx.x] = key;\n", "counted",
     f"{RACE}|{NEVER}"),
    ("barrier", "nms.cu", "key = shared[0];\n    " + SYNC, "key = shared[0];\n", "counted", RACE),
    ("off by one", "nms.cu", "i < n.boxes; i += BLOCK_THREADS", "i <= n.boxes; i += BLOCK_THREADS", "counted",
     f"{BOUNDS}|{WRONG}"),
    ("stride", "nms.cu", "line / n.classes * n.boxes * 4;", "line * n.boxes * 4;", "counted", f"{BOUNDS}|{WRONG}"),

    # One result a thread: nothing is shared, so there is no barrier to miss.
    ("off by one", "pool.cu", "at[i] >= 0 && at[i] < w.in[i];", "at[i] >= 0 && at[i] <= w.in[i];", "pool",
     f"{BOUNDS}|{WRONG}"),
    ("stride", "pool.cu", "image * p.in_image + channel * p.window.channel_step;",
     "image * p.out_image + channel * p.window.channel_step;", "pool", f"{BOUNDS}|{WRONG}"),
    ("off by one", "resize.cu", "taps->offset[1] = clamp_index(first + 1, axis.in) * step;",
     "taps->offset[1] = (first + 1) * step;", "resample", BOUNDS),
    ("stride", "resize.cu", "from += place * r.from.of[axis];", "from += place * r.to.of[axis];", "resample",
     f"{BOUNDS}|{WRONG}"),
    ("off by one", "sample.cu", "i < 0 ? 0 : i >= length ? length - 1 : i;", "i < 0 ? 0 : i > length ? length - 1 : i;",
     "resample", f"{BOUNDS}|{WRONG}"),
    ("stride", "sample.cu", "(image * r.channels + channel) * r.height * r.width,",
     "(image * r.channels + channel) * r.height * r.height,", "resample", f"{BOUNDS}|{WRONG}"),
    ("off by one", "indexed.cuh", "if (index >= 0 && index < length)", "if (index >= 0 && index <= length)", "indexing",
     f"{BOUNDS}|{WRONG}"),
    ("stride", "gather.cu", "walk_offset(g.walk, g.from, i) + index * g.stride", "walk_offset(g.walk, g.from, i) + index",
     "indexing", WRONG),
    ("initialisation", "scatter.cu",
     "        cudaMemsetAsync(scatter->last, 0xFF, (size_t)scatter->count * sizeof(int32_t), stream);",
     "        cudaSuccess;", "indexing", f"{NEVER}|{WRONG}"),
    ("stride", "scatter.cu", "from + u * s.update_step", "from + u", "indexing", WRONG),
    ("off by one", "einsum.cu", "k < e.sum.count; k++", "k <= e.sum.count; k++", "einsum", f"{BOUNDS}|{WRONG}"),
    ("stride", "einsum.cu", "walk_offset(e.sum, e.sum_strides[n], k)", "k", "einsum", f"{BOUNDS}|{WRONG}"),
    ("off by one", "recurrent.cu", "return cell.time >= length;", "return cell.time > length;", "recurrent", WRONG),
    ("stride", "recurrent.cu", "cell.input + row * cell.input_step + place", "cell.input + row * cell.hidden + place",
     "recurrent", WRONG),
    ("off by one", "pointwise.cu", "choose->walk.count == 0", "choose->walk.count <= 1", "binary", WRONG),
    ("stride", "pointwise.cu", "((const E *)c.b)[offsets[3]]", "((const E *)c.b)[offsets[2]]", "binary",
     f"{BOUNDS}|{WRONG}"),
    ("off by one", "walk.cuh", "axis = rank - 1; axis > 0; axis--", "axis = rank - 1; axis > 1; axis--", "movement",
     f"{BOUNDS}|{WRONG}"),

    # The host's side: waits, handles, pages.
    ("synchronisation", "../lane.c", "    return cuda_status(cudaEventSynchronize(lane->done));", "    return STATUS_OK;",
     "counted", f"{WRONG}|{NEVER}", {"SLUICE_SIM_MODE": "lazy"}),
    ("synchronisation", "../source.c", "    return cuda_status(cudaStreamSynchronize(cuda->upload));",
     "    return STATUS_OK;", "run", f"{WRONG}|{NEVER}"),
    ("leak", "../lane.c", "        (void)cudaEventDestroy(lane->done);", "        lane->done = NULL;", "run", LEFT),
    ("leak", "../lane.c", "    (void)cuda_status(cudaGraphExecDestroy(recording->exec));\n", "", "run", LEFT),
    ("leak", "../vmm.c", "        (void)vmm->driver.mem_release(vmm->kept[--vmm->kept_count]);",
     "        vmm->kept_count--;", "run", LEFT),
    ("leak", "../vmm.c", "        (void)vmm->driver.mem_address_free(range->base, range->bytes);\n", "", "run", LEFT),
    ("freed page", "../vmm.c", "page < to && status == STATUS_OK; page++)\n        status = map_page",
     "page + 1 < to && status == STATUS_OK; page++)\n        status = map_page", "source", "[Ff]ailed|mapped"),
    ("freed page", "../vmm.c", "        status = map(vmm, range, from, from + bytes / page_of(vmm));\n",
     "        status = map(vmm, range, from, from + bytes / page_of(vmm));\n        unmap(vmm, range, from, from + 1);\n",
     "run", "mapped"),
]


def commands_of(build, target):
    """The command by which ninja makes one file of the build."""
    lines = subprocess.run(["ninja", "-C", build, "-t", "commands", target], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    return lines[-1]


def program_of(build, name):
    for path in (build / "tests" / f"device_test_cuda_{name}", build / "tests/device/cuda" / f"device_cuda_test_{name}"):
        if path.exists():
            return path
    sys.exit(f"there is no test '{name}' in {build}")


class Mutant:
    def __init__(self, build, row):
        self.build = build
        self.kind, file, self.text, self.instead, self.test, self.words = row[:6]
        self.environment = row[6] if len(row) > 6 else {}
        self.source = (ROOT / KERNELS / file).resolve()
        self.name = f"{self.source.name}: {self.kind}"

    def sow(self, folder):
        """Writes the source with its mistake; says why it cannot."""
        text = self.source.read_text()
        if text.count(self.text) != 1:
            return f"its text stands there {text.count(self.text)} times: {self.text!r}"
        place = folder / self.source.relative_to(ROOT / "daemon")
        place.parent.mkdir(parents=True)
        place.write_text(text.replace(self.text, self.instead))
        return None

    def units(self):
        """What is compiled anew: the file, or all kernels that include it."""
        if self.source.suffix in (".cu", ".c"):
            return [self.source]
        word = f'"{self.source.relative_to(ROOT / "daemon")}"'
        users = [path for path in sorted((ROOT / KERNELS).glob("*.cu")) if word in path.read_text()]
        own = {"norm": "normalize", "counted": "nms", "indexing": "gather", "movement": "move"}.get(self.test)
        return [path for path in users if path.stem == own] or users

    def object_of(self, unit):
        if unit.suffix == ".cu":
            return f"daemon/cuda/{unit.stem}.cu.o"
        return f"daemon/CMakeFiles/sluice-cuda.dir/{unit.relative_to(ROOT / 'daemon')}.o"

    def build_in(self, folder):
        """The plug-in with the mistake; what a compiler says when it refuses."""
        link = commands_of(self.build, "daemon/libsluice-cuda.so")
        for unit in self.units():
            known, made = self.object_of(unit), folder / f"{unit.name}.o"
            command = commands_of(self.build, known).split(" && /usr/bin/cmake ")[0]
            own = folder / unit.relative_to(ROOT / "daemon")
            if own.exists():
                command = command.replace(str(unit), str(own))
            command = re.sub(r"(-o )\S+", rf"\g<1>{made}", command)
            command = re.sub(r" -Werror\S*( all-warnings)?| -M[DTF]+( \S+\.[do])?", "", command)
            command = command.replace(" -c ", f" -I{folder} -c ", 1).replace(" -I", f" -I{folder} -I", 1)
            done = subprocess.run(command, shell=True, cwd=self.build, capture_output=True, text=True, timeout=300)
            if done.returncode != 0:
                return done.stderr
            link = link.replace(f" {known} ", f" {made} ")
        link = link.replace("-o daemon/libsluice-cuda.so", f"-o {folder}/libsluice-cuda.so")
        done = subprocess.run(link, shell=True, cwd=self.build, capture_output=True, text=True, timeout=300)
        return done.stderr if done.returncode != 0 else None

    def run(self, folder):
        """None when the test fails as it should."""
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self.build / "tests/sim/lib"),
                       "SLUICE_PLUGIN_DIR": str(folder), "SLUICE_SIM_NO_VMM": "1", **self.environment}
        if self.source.name in ("vmm.c", "lane.c", "source.c"):
            del environment["SLUICE_SIM_NO_VMM"]
        try:
            done = subprocess.run([program_of(self.build, self.test)], capture_output=True, text=True, timeout=240,
                                  env=environment, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return "the test did not end in 240 seconds"
        said = done.stdout + done.stderr
        if done.returncode == 0:
            return f"'{self.test}' passes"
        if not re.search(self.words, said):
            return f"'{self.test}' fails without a word of {self.words!r}:\n" + said[-1500:]
        return None

    def check(self):
        with tempfile.TemporaryDirectory(prefix="sluice-mutant-") as name:
            folder = pathlib.Path(name)
            return self.sow(folder) or self.build_in(folder) or self.run(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    part, parts = (int(number) for number in options.part.split("/"))
    mutants = [Mutant(options.build.resolve(), row) for row in MUTANTS[part::parts]]
    missed = 0
    for mutant in mutants:
        if options.words and not any(word in mutant.name for word in options.words):
            continue
        why = mutant.check()
        missed += why is not None
        print(f"{'found ' if why is None else 'MISSED'} {mutant.name}" + (f": {why}" if why else ""), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
