# ./dev demo: the whole idea in two minutes.  What is in these files?  The daemon answers with magika.
demo() {
    build release
    local run
    run=$(mktemp -d)
    DEMO_RUN=$run
    trap demo_stop EXIT
    local admin=unix:$run/admin.sock grpc=unix:$run/grpc.sock
    SLUICECTL=(build/release/client/sluicectl --server "$admin")
    FILETYPE=(build/release/examples/filetype --server "$grpc" --labels models/magika/labels.txt)

    say "starting sluiced on models/ (log: $run/log)"
    build/release/daemon/sluiced --model-repository models --set Models.ControlMode=explicit \
        --set "Server.GrpcListen=$grpc" --set "Server.HttpListen=unix:$run/http.sock" \
        --set "Server.MetricsListen=unix:$run/metrics.sock" --set "Server.AdminListen=$admin" \
        --set Memory.Limit=256M --set Memory.LowWatermark=0.3 --set Memory.HighWatermark=0.5 \
        --set Memory.Dwell=1s 2>"$run/log" &
    DEMO_PID=$!
    demo_wait_ready

    say "the memory story: load, burst, watermark, empty_cache, unload"
    python3 scripts/memory_story.py build/release/client/sluicectl "$admin" magika 48

    say "53 files with known answers, one request each, 16 connections"
    "${SLUICECTL[@]}" load magika
    "${FILETYPE[@]}" --expected examples/expected.tsv examples/files/*

    say "files found on this machine"
    demo_find_files "$run/list"
    xargs -a "$run/list" -d '\n' "${FILETYPE[@]}" |
        awk '/files in/ { line = $0; next } { kinds[$1]++ } END { for (k in kinds) printf "%6d %s\n", kinds[k], k; print line }' |
        sort -rn | sed -n 1,16p

    say "throughput: 16 connections, with batching and without"
    "${FILETYPE[@]}" --quiet --repeat 40 examples/files/* | tail -1 | sed 's/^/  batching:  /'
    demo_batches
    "${SLUICECTL[@]}" load magika '{"name":"magika","max_batch_size":1}' >/dev/null
    "${FILETYPE[@]}" --quiet --repeat 40 examples/files/* | tail -1 | sed 's/^/  one by one: /'

    demo_stop
    trap - EXIT
    say "demo: all answers right, memory returned, daemon stopped"
}

demo_wait_ready() {
    local i
    for i in $(seq 200); do
        "${SLUICECTL[@]}" health >/dev/null 2>&1 && return 0
        kill -0 "$DEMO_PID" 2>/dev/null || { cat "$DEMO_RUN/log"; die "sluiced did not start"; }
        sleep 0.05
    done
    die "sluiced is not ready after 10 s; its log: $DEMO_RUN/log"
}

# A few hundred ordinary files of many kinds.
demo_find_files() {
    find /usr/share /usr/lib /usr/include /etc -xdev -type f -readable -size +1k -size -200k \
        \( -name '*.h' -o -name '*.py' -o -name '*.sh' -o -name '*.pm' -o -name '*.gz' -o -name '*.so*' -o -name '*.xml' \
        -o -name '*.html' -o -name '*.png' -o -name '*.cmake' -o -name '*.json' -o -name '*.svg' \) 2>/dev/null |
        sort | awk '{ n = split($0, part, "."); if (count[part[n]]++ < 40 && found++ < 300) print }' >"$1" ||
        true # a folder that may not be read is no reason to stop
}

# How many rows the batches had, from the daemon's statistics.
demo_batches() {
    "${SLUICECTL[@]}" --json stats magika | python3 -c '
import json, sys
rows = json.load(sys.stdin)["model_stats"][0].get("batch_stats", [])
most = max([r["compute_infer"]["count"] for r in rows] or [1])
for r in rows:
    count = r["compute_infer"]["count"]
    print("    batch of %3d: %6d %s" % (r["batch_size"], count, "#" * round(40 * count / most)))' ||
        say "no batch statistics"
}

demo_stop() {
    [ -n "${DEMO_PID:-}" ] || return 0
    kill -TERM "$DEMO_PID" 2>/dev/null || true
    wait "$DEMO_PID" 2>/dev/null || true
    DEMO_PID=
    rm -rf "$DEMO_RUN"
}
