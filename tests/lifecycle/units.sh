#!/usr/bin/env bash
# units.sh FOLDER: the units in FOLDER say nothing that systemd would complain about, and are as closed
# as promised.  systemd-analyze answers 0 for many faults, so its silence is what counts.
set -u
command -v systemd-analyze >/dev/null || { echo "no systemd-analyze here; ./dev test installs it"; exit 1; }
cd "$1" || exit 1
failed=0

for unit in sluiced.service sluiced@0.service sluiced.socket sluiced-http.socket; do
    complaints=$(systemd-analyze verify --man=no "./$unit" 2>&1) || failed=1
    if [ -n "$complaints" ]; then
        printf '%s:\n%s\n' "$unit" "$complaints"
        failed=1
    fi
done
for unit in sluiced.service sluiced@.service; do
    # The threshold is ten times the score.
    systemd-analyze security --offline=true --no-pager --threshold=20 "./$unit" >report 2>&1 || failed=1
    tail -n 1 report
done
rm -f report
exit $failed
