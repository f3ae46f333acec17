# ./dev test [--slow]: everything, on a machine without a GPU.
#
# Phases run one after another and all of them run, so that one call shows every fault; the counts
# over all phases and one line of result stand at the end.  --slow adds the tests of the label slow, the
# conformance tests under the sanitizers and public models against ONNX Runtime.
test() {
    local slow='' left_out=slow
    case ${1:-} in
    '') ;;
    --slow) slow=1 left_out='^$' ;;
    *) die "test: unknown option '$1'; --slow is known" ;;
    esac
    PHASES=()
    FAULTS=()
    rm -rf build/results
    mkdir -p build/results

    phase "packages" test_packages
    phase "dev: build (gcc)" test_build dev
    phase "dev: all tests" test_ctest dev -LE "$left_out"
    phase "clang: build" test_build clang
    phase "ndebug: build" test_build ndebug
    phase "asan: build" test_build asan
    phase "asan: unit, process, end to end, fuzz replay" test_ctest asan -LE "${slow:+slow|}${slow:-conformance|slow}"
    phase "tsan: build" test_build tsan thread_tests
    phase "tsan: threads, process, end to end" test_ctest tsan -L threads
    [ -z "$slow" ] || phase "public models against ONNX Runtime" test_models
    test_report
}

# Runs a command, notes how long it took and whether it failed.
phase() { # NAME COMMAND...
    local name=$1 began=$SECONDS result=ok
    shift
    say "$name"
    ("$@") || { result=FAILED; FAULTS+=("$name"); }
    PHASES+=("$(printf '%5d s  %-6s  %s' $((SECONDS - began)) "$result" "$name")")
}

test_packages() {
    need "${PACKAGES[@]}" "${TEST_PACKAGES[@]}" && test_python && test_balancers
}

# HAProxy and nginx for the files of deploy/: unpacked, not installed, for that would start services.
test_balancers() {
    local folder=$PWD/.cache/balancers
    if [ -x "$folder/usr/sbin/haproxy" ] && [ -x "$folder/usr/sbin/nginx" ]; then
        return 0
    fi
    say "unpacking haproxy and nginx"
    mkdir -p "$folder/packages"
    (cd "$folder/packages" && apt-get -o APT::Sandbox::User=root download -qq haproxy nginx) || return 1
    for package in "$folder"/packages/*.deb; do
        dpkg-deb -x "$package" "$folder" || return 1
    done
}

# The interpreter of the end-to-end tests, and the newest wheel that ships ONNX's backend tests.
test_python() {
    python_with numpy onnx==1.22.0 'tritonclient[all]==2.73.0'
}

test_build() { # PRESET [TARGET]
    test_python || return 1
    cmake --preset "$1" -DSLUICE_TEST_PYTHON="$PYTHON" >"build/results/configure-$1" 2>&1 ||
        { cat "build/results/configure-$1"; return 1; }
    cmake --build "build/$1" ${2:+--target "$2"} -- --quiet
}

# OpenMP's threads are not instrumented: under ThreadSanitizer kernels run on one.
test_ctest() { # PRESET CTEST-ARGUMENT...
    local preset=$1 jobs
    shift
    jobs=$(nproc) # asked before OMP_NUM_THREADS, which nproc obeys, is set
    [ "$preset" != tsan ] || export SLUICE_DEVICE_THREADS=1 OMP_NUM_THREADS=1
    export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
    ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$jobs" \
        --output-junit "$PWD/build/results/$preset.xml" "$@" || return 1
    test_conformance_summary "$preset"
}

# The last line of each conformance table: passed, failed, refused with a reason.
test_conformance_summary() { # PRESET
    awk '/ Testing: conformance_/ { set = $3 }
         /^operator +passed +failed/ { head = $0 }
         /^all( +[0-9]+)+$/ && set != "" { print set; print head; print; set = "" }' \
        "build/$1/Testing/Temporary/LastTest.log"
}

# Public models are fetched by a script beside the repository.
test_models() {
    local fetch=../shared/open-models/fetch.py models=.cache/open-models
    if [ ! -e "$fetch" ]; then
        say "skipped: $fetch is not here, so there are no public models to compare with ONNX Runtime"
        return 0
    fi
    python_with numpy onnx==1.22.0 onnxruntime==1.32.0 || return 1
    [ -e "$models/models.json" ] || "$PYTHON" "$fetch" "$models" || return 1
    "$PYTHON" tests/models/check.py --sluice-run build/dev/tests/conformance/sluice-run --models "$models"
}

test_report() {
    local passed failed skipped names
    read -r passed failed skipped names < <(python3 - build/results/*.xml <<'PYTHON'
import sys
import xml.etree.ElementTree as tree
suites = [tree.parse(path).getroot() for path in sys.argv[1:] if path.endswith(".xml") and "*" not in path]
count = {key: sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "failures", "skipped", "disabled")}
skipped = count["skipped"] + count["disabled"]
names = {case.get("name") for suite in suites for case in suite.iter("testcase")
         if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled")}
print(count["tests"] - count["failures"] - skipped, count["failures"], skipped, *sorted(names))
PYTHON
    )
    say "phases"
    printf '%s\n' "${PHASES[@]}"
    printf '%d passed, %d failed, %d skipped%s\n' "$passed" "$failed" "$skipped" "${names:+ ($names)}"
    [ ${#FAULTS[@]} -eq 0 ] || die "test: failed: $(printf '%s; ' "${FAULTS[@]}" | sed 's/; $//')"
    say "all tests passed"
}
