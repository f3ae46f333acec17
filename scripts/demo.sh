# ./dev demo: the whole idea in two minutes.  What is in these files?  The daemon answers with magika.
demo() {
    # The CUDA plug-in takes minutes to compile for every architecture: only where there is a GPU.
    local targets=(sluiced sluicectl filetype)
    [ ! -e /dev/nvidiactl ] || targets=(all)
    build release "${targets[@]}"
    DEMO_RUN=$(mktemp -d)
    trap demo_stop EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    local admin=unix:$DEMO_RUN/admin.sock grpc=unix:$DEMO_RUN/grpc.sock
    SLUICECTL=(build/release/client/sluicectl --server "$admin")
    FILETYPE=(build/release/examples/filetype --server "$grpc" --labels models/magika/labels.txt)

    say "starting sluiced on models/, with a budget of 256 MiB"
    build/release/daemon/sluiced --model-repository models --set Models.ControlMode=explicit \
        --set "Server.GrpcListen=$grpc" --set "Server.HttpListen=unix:$DEMO_RUN/http.sock" \
        --set "Server.MetricsListen=unix:$DEMO_RUN/metrics.sock" --set "Server.AdminListen=$admin" \
        --set Memory.Limit=256M --set Memory.LowWatermark=0.3 --set Memory.HighWatermark=0.5 \
        --set Memory.Dwell=1s 2>"$DEMO_RUN/log" &
    DEMO_PID=$!
    demo_wait_ready

    say "memory: load, burst, watermark, empty_cache, unload"
    python3 scripts/memory_story.py build/release/client/sluicectl "$admin" magika 48 16

    say "53 files with known answers: their kind, its score"
    "${SLUICECTL[@]}" load magika >/dev/null
    "${FILETYPE[@]}" --expected examples/expected.tsv examples/files/* >"$DEMO_RUN/known" ||
        { cat "$DEMO_RUN/known"; die "answers differ from ONNX Runtime's"; }
    head -n -2 "$DEMO_RUN/known" | pr -2 -t -l 27 -w 98 | expand
    tail -n 2 "$DEMO_RUN/known" | head -n 1 | sed 's/^/  /'

    say "files found on this machine"
    demo_find_files "$DEMO_RUN/list"
    xargs -a "$DEMO_RUN/list" -d '\n' "${FILETYPE[@]}" >"$DEMO_RUN/found"
    awk '!/ files in / { kinds[$1]++ } END { for (k in kinds) printf "%6d %-12s\n", kinds[k], k }' \
        "$DEMO_RUN/found" | sort -rn | sed -n 1,20p | pr -5 -t -l 4 -w 98 | expand
    tail -n 1 "$DEMO_RUN/found" | sed 's/^/  /'

    # As many requests as take about 5 s, the same number each way.
    local repeat
    repeat=$(awk '/ files in / { for (i = 1; i < NF; i++) if ($(i + 1) == "a" && $(i + 2) == "second") r = $i }
        END { n = int(r * 5 / 53); print (n < 2 ? 2 : n > 200 ? 200 : n) }' "$DEMO_RUN/found")
    say "$((repeat * 53)) requests from 16 connections, with batching and without"
    demo_throughput "batches  " "$repeat"
    demo_batches
    "${SLUICECTL[@]}" load magika '{"name":"magika","max_batch_size":1}' >/dev/null
    demo_throughput "one by one" "$repeat"
    printf "  (one row of this model is milliseconds of arithmetic: batching saves what is around it)\n"

    kill -TERM "$DEMO_PID"
    wait "$DEMO_PID" || { cat "$DEMO_RUN/log"; die "sluiced ended with status $?"; }
    DEMO_PID=
    demo_stop
    trap - EXIT INT TERM
    say "demo: all answers right, all memory returned, daemon stopped"
}

demo_wait_ready() {
    local i
    for i in $(seq 200); do
        "${SLUICECTL[@]}" health >/dev/null 2>&1 && return 0
        kill -0 "$DEMO_PID" 2>/dev/null || { cat "$DEMO_RUN/log"; die "sluiced did not start"; }
        sleep 0.05
    done
    cat "$DEMO_RUN/log"
    die "sluiced is not ready after 10 s"
}

# A few hundred ordinary files of many kinds.
demo_find_files() {
    find /usr/share /usr/lib /usr/include /etc -xdev -type f -readable -size +1k -size -200k \
        \( -name '*.h' -o -name '*.py' -o -name '*.sh' -o -name '*.pm' -o -name '*.gz' -o -name '*.so*' -o -name '*.xml' \
        -o -name '*.html' -o -name '*.png' -o -name '*.cmake' -o -name '*.json' -o -name '*.svg' \) 2>/dev/null |
        sort | awk '{ n = split($0, part, "."); if (count[part[n]]++ < 40 && found++ < 300) print }' >"$1" ||
        true # a folder that may not be read is no reason to stop
}

# Requests a second, and what each costs the daemon: a busy machine changes the first, not the second.
demo_throughput() { # LABEL REPEAT
    local before after line
    before=$(demo_cpu)
    line=$("${FILETYPE[@]}" --quiet --repeat "$2" examples/files/* | tail -n 1)
    after=$(demo_cpu)
    awk -v label="$1" -v line="$line" -v ticks=$((after - before)) -v hz="$(getconf CLK_TCK)" 'BEGIN {
        split(line, word, " ")
        printf "  %-11s %s a second, %.2f ms of CPU time each\n", label, word[6], 1000 * ticks / hz / word[1] }'
}

# User and system time of the daemon, in ticks.
demo_cpu() {
    sed 's/.*) //' "/proc/$DEMO_PID/stat" | awk '{ print $12 + $13 }'
}

# How many batches had so many rows, from the daemon's statistics.
demo_batches() {
    "${SLUICECTL[@]}" --json stats magika | python3 -c '
import json, sys
rows = json.load(sys.stdin)["model_stats"][0].get("batch_stats", [])
counts = sorted((int(r["batch_size"]), int(r["compute_infer"]["count"])) for r in rows)
most = max([count for _, count in counts] or [1])
for size, count in counts:
    print(f"    batches of {size:2}: {count:5} {chr(35) * round(50 * count / most)}")'
}

demo_stop() {
    if [ -n "${DEMO_PID:-}" ]; then
        kill -TERM "$DEMO_PID" 2>/dev/null || true
        wait "$DEMO_PID" 2>/dev/null || true
        DEMO_PID=
    fi
    [ -z "${DEMO_RUN:-}" ] || rm -rf "$DEMO_RUN"
    DEMO_RUN=
}
