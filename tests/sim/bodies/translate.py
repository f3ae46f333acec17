#!/usr/bin/env python3
"""translate.py FILE.cu... FILE.cuh... FOLDER: makes files that a C++ compiler takes.

The only thing in a kernel file that is no C++ is how kernels are launched:

    kernel<T><<<grid, block, 0, stream>>>(*args);
    bodies_launch(grid, block, 0, stream, [&] { kernel<T>(*args); });

FOLDER/<stem>.cpp for each .cu, FOLDER/device/cuda/kernels/<name> for each .cuh; both speak of their sources' lines.
A header that stands beside this file goes instead of the plug-in's: of inline PTX a C++ compiler makes nothing.
"""
import pathlib
import re
import sys

LAUNCH = re.compile(r"(\w+(?:<[^<>;]*>)?)(\s*)<<<(.*?)>>>\((.*?)\);", re.DOTALL)


def translate(source):
    # What a launch is broken over stays broken: the lines behind it keep their numbers.
    text = LAUNCH.sub(r"bodies_launch(\2\3, [&] { \1(\4); });", source.read_text())
    if "<<<" in text:
        sys.exit(f"{source}: a launch in a form that translate.py does not know")
    return f'#line 1 "{source}"\n{text}'


def write(target, text):
    """Leaves a file that says the same as it is, so that nothing is built anew."""
    if not target.exists() or target.read_text() != text:
        target.write_text(text)


def main():
    *sources, folder = map(pathlib.Path, sys.argv[1:])
    headers = folder / "device/cuda/kernels"
    headers.mkdir(parents=True, exist_ok=True)
    for source in sources:
        own = pathlib.Path(__file__).with_name(source.name)
        if source.suffix == ".cuh" and own.exists():
            write(headers / source.name, translate(own))
        elif source.suffix == ".cuh":
            write(headers / source.name, translate(source))
        else:
            write(folder / f"{source.stem}.cpp", '#include "bodies.cuh"\n' + translate(source))


if __name__ == "__main__":
    main()
