#!/usr/bin/env bash
# Prints the results of run.sh's guests as the table of docs/kernels.md; fails if a test failed or a
# guest did not finish. Usage: table.sh KERNEL...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../target/kernels"

# Prints for each test of a kernel: backend, ok, FAILED or skipped, program, test, why.
judged() { # KERNEL
    local log skips code program
    for log in "$1"/results/*.log; do
        skips=${log%.log}.skips
        code=$(cat "${log%.log}.code" 2>/dev/null || echo none)
        program=$(basename "${log%.log}")
        [ -e "$skips" ] || skips=/dev/null
        awk -v "program=${program%%+*}" -v "code=$code" -v "usable=$(cat "$1/results/backends")" '
            function backend_of(name,   parts, n, i) {
                n = split(program "::" name, parts, "::")
                for (i = 1; i <= n; i++) {
                    if (parts[i] ~ /^uring(_any|_single|_of_depth_one)?$/) return "uring"
                    if (parts[i] ~ /^(kaio|aio)(_of_depth_one)?$/) return "kaio"
                    if (parts[i] ~ /^(threads|single_thread)$/) return "threads"
                }
                return "any"
            }
            function tell(name, word, why) {
                printf "%s\t%s\t%s\t%s\t%s\n", backend_of(name), word, program, name, why
            }
            FILENAME != ARGV[2] && /^skipped: / {
                at = index(substr($0, 10), ": ")
                why[substr($0, 10, at - 1)] = substr($0, 11 + at)
                next
            }
            /^test .* \.\.\. / && FILENAME == ARGV[2] {
                name = $2
                all++
                if (/ \.\.\. FAILED/) { failed++; tell(name, "FAILED", "") }
                else if (/ \.\.\. ignored/) tell(name, "skipped", "only by name, on any kernel")
                else if (name in why) tell(name, "skipped", why[name])
                else if (!index(usable, backend_of(name)) && backend_of(name) != "any")
                    tell(name, "skipped", "the backend is not there")
                else tell(name, "ok", "")
            }
            END {
                if (code != 0 && !failed) tell("(the program)", "FAILED", "it ended with " code)
            }' "$skips" "$log"
    done
}

echo "| kernel | tests of | passed | failed | skipped |"
echo "|---|---|---|---|---|"
bad=0
for kernel in "$@"; do
    release=$(cat "$kernel/results/uname" 2>/dev/null) || release="did not start"
    judged "$kernel" >"$kernel/judged"
    for backend in uring kaio threads any; do
        awk -F '\t' -v "kernel=$release" -v "backend=$backend" '
            $1 == backend { count[$2]++ }
            END {
                if (backend == "any") backend = "all of them, or none"
                printf "| %s | %s | %d | %d | %d |\n", kernel, backend, count["ok"],
                    count["FAILED"], count["skipped"]
            }' "$kernel/judged"
    done
    if grep -q $'\tFAILED\t' "$kernel/judged" || [ ! -e "$kernel/results/dmesg" ]; then bad=1; fi
done
for kernel in "$@"; do
    printf '\n%s\n\n' "$(cat "$kernel/results/uname" 2>/dev/null || echo "$kernel")"
    [ -e "$kernel/results/dmesg" ] || echo "- the guest did not come to its end"
    awk -F '\t' '
        $2 == "FAILED" { printf "- failed: %s %s %s\n", $3, $4, $5 }
        $2 == "skipped" { reasons[$5]++ }
        END { for (why in reasons) printf "- skipped, %d: %s\n", reasons[why], why }' \
        "$kernel/judged" | sort
    sed -n '/usable/,/auto chooses/p' "$kernel/results/doctor" 2>/dev/null || true
done
exit "$bad"
