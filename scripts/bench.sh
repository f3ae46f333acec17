# ./dev bench [engines [--avx2]|public [folder [--avx2]]|start|serve [part,...]|planner|memory [part,...]|shapes]: sluice and its
# peers side by side, the memory planner against its bounds, the governor's figures, and many input shapes.
bench() {
    local part=${1:-all}
    [ $# -gt 0 ] && shift
    case $part in
    engines) bench_prepare; bench_engines "$@" ;;
    public) bench_prepare; bench_public "$@" ;;
    start) bench_prepare; bench_start "$@" ;;
    serve) bench_prepare; bench_serve "$@" ;;
    planner) build release; bench_planner "$@" ;;
    memory) build release; bench_memory "$@" ;;
    shapes) build release; python_with numpy onnx==1.22.0; bench_shapes "$@" ;;
    all) bench_prepare; bench_engines; bench_public; bench_start; bench_serve; bench_planner; bench_memory; bench_shapes ;;
    *) die "bench: unknown part '$part'; engines, public, start, serve, planner, memory and shapes are known" ;;
    esac
}

bench_prepare() {
    need "${BENCH_PACKAGES[@]}"
    build release
    python_with numpy onnx==1.22.0 onnxruntime openvino
    "$PYTHON" benchmarks/make_models.py .cache/bench-models
}

bench_engines() {
    "$PYTHON" benchmarks/engines.py --sluice-bench build/release/benchmarks/sluice-bench "$@"
}

# The models that `./dev test --slow` checks, or those of another folder.
bench_public() {
    local folder=${1:-.cache/open-models}
    if ! ls "$folder"/*.onnx >/dev/null 2>&1; then
        say "public models: skipped, none in $folder"
        return
    fi
    "$PYTHON" benchmarks/public.py --sluice-bench build/release/benchmarks/sluice-bench --models "$folder" "${@:2}"
}

# From the start of the process to the first answer, and what the weights hold then.
bench_start() {
    "$PYTHON" benchmarks/start.py --build build/release "$@"
}

bench_serve() {
    "$PYTHON" benchmarks/serve.py --build build/release ${1:+--part "$1"}
}

bench_memory() {
    python_with numpy onnx==1.22.0
    "$PYTHON" benchmarks/memory.py --build build/release ${1:+--part "$1"}
}

# Ten thousand distinct input shapes; ends with 1 when memory is not bounded.
bench_shapes() {
    "$PYTHON" benchmarks/shapes.py --build build/release "$@"
}

# Plans of models, then the published planner benchmarks; a budget a file in seconds may be given.
bench_planner() {
    local folder=../shared/planner-benchmarks programs=build/release/benchmarks files models
    mapfile -t models < <(ls .cache/bench-models/*.onnx .cache/open-models/*.onnx 2>/dev/null)
    if [ "${#models[@]}" -gt 0 ]; then
        say 'plans of models, quick'
        "$programs/sluice-plan-models" "${models[@]}"
        say 'plans of models, thorough'
        "$programs/sluice-plan-models" --thorough "${models[@]}"
    else
        say 'plans of models: skipped, none in .cache/bench-models and .cache/open-models'
    fi
    mapfile -t files < <(ls "$folder"/*/*.csv 2>/dev/null)
    if [ "${#files[@]}" = 0 ]; then
        say "planner: skipped, no benchmark files in $folder"
        return
    fi
    say 'planner, quick'
    "$programs/sluice-plan-bench" "${files[@]}"
    say 'planner, thorough'
    "$programs/sluice-plan-bench" --thorough --budget-s "${1:-60}" "${files[@]}"
}
