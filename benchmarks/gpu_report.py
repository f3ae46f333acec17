#!/usr/bin/env python3
"""gpu_report.py FOLDER: what the steps of benchmarks/gpu.sh left there, as result.json and as a table."""
import json
import pathlib
import sys


def load(folder, name):
    """A part's JSON; None when the part was not run, or ended before it wrote any."""
    try:
        return json.loads((folder / f"{name}.json").read_text())
    except (OSError, json.JSONDecodeError):
        return None


def steps_of(folder):
    path = folder / "steps.tsv"
    rows = [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []
    return [{"step": name, "result": result, "seconds": int(seconds)} for name, result, seconds in rows]


def speed_table(rows):
    """One line a model and batch, one column an engine, precision and way; milliseconds and rows a second."""
    def column(row):
        way = {True: " graphs", False: " eager"}.get(row.get("graphs"), "")
        return f"{row['engine']} {row['precision']}{way}"
    columns = sorted({column(row) for row in rows})
    lines = []
    for model, batch in sorted({(row["model"], row["batch"]) for row in rows}):
        lines.append(f"{model}, batch {batch}")
        for name in columns:
            for row in rows:
                if (row["model"], row["batch"], column(row)) == (model, batch, name):
                    lines.append(f"  {name:28} " + (f"{row['median_ms']:10.3f} ms {row['rows_per_second']:10.1f} rows/s"
                                                    if "median_ms" in row else row["error"]))
    return lines


def conformance_of(folder):
    """How many passed, failed, were refused, skipped, and the first that failed; of those that had their turn."""
    path = folder / "conformance.log"
    found = {"passed": 0, "failed": 0, "refused": 0, "skipped": 0}
    failures = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
            found[row["outcome"]] += 1
        except (ValueError, KeyError, TypeError):
            continue  # what a test or a library says
        if row["outcome"] == "failed" and len(failures) < 20:
            failures.append(f"{pathlib.Path(row['test']).name}: {row['reason']}")
    return {**found, "failures": failures} if any(found.values()) else None


def main():
    folder = pathlib.Path(sys.argv[1])
    result = {"steps": steps_of(folder)}
    for part in ("device", "simulator", "pages", "speed", "peers"):
        result[part] = load(folder, part)
    for log in ("start", "empty-cache"):
        path = folder / f"{log}.log"
        result[log] = path.read_text().splitlines() if path.exists() else None
    result["conformance"] = conformance_of(folder)
    (folder / "result.json").write_text(json.dumps(result, indent=1))

    for row in result["device"] or []:
        print("\n".join(f"{key}: {value}" for key, value in {**row.pop("gpu"), **row}.items()
                        if not isinstance(value, dict)))
    print("\nstep          seconds  result")
    for step in result["steps"]:
        print(f"{step['step']:12}  {step['seconds']:7}  {step['result']}")
    for row in result["simulator"] or []:
        print(f"\nsimulator, {row['network']}: {'agrees' if row['agrees'] else 'DISAGREES'}, "
              f"worst relative difference {row['worst_relative_difference']:.2g}")
    if result["conformance"]:
        failures = result["conformance"]["failures"]
        print("\nONNX's tests: " + ", ".join(f"{count} {name}" for name, count in result["conformance"].items()
                                            if name != "failures"))
        print("\n".join(failures))
    if result["pages"]:
        print("\nhandle of MiB   create    map  access  unmap  release   us each")
        for row in result["pages"]:
            print(f"{row['bytes'] >> 20:13}" + "".join(f"{row[key]:8.1f}" for key in (
                "create_us", "map_us", "access_us", "unmap_us", "release_us")))
    print()
    print("\n".join(speed_table((result["speed"] or []) + (result["peers"] or []))))
    for log in ("start", "empty-cache"):
        print("\n".join(["", log, *(result[log] or ["not measured"])]))


if __name__ == "__main__":
    main()
