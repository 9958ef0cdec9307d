#!/usr/bin/env bash
# Records tests/exercise.c with every MPI that is installed and simulates the trace.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
farcall=${FARCALL:-../../target/release/farcall}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export FARCALL_TRACE_CALC=0
passed=0 failed=0 skipped=0
# Runs a program with $n ranks, and records $trace.
record() {
    case $mpi in
        openmpi) timeout 60 "mpirun.$mpi" --allow-run-as-root --oversubscribe -n "$n" \
            -x "LD_PRELOAD=$work/record.so" -x "FARCALL_TRACE=$trace" -x FARCALL_TRACE_CALC \
            "$1" >"$work/log" 2>&1 ;;
        mpich) timeout 60 "mpirun.$mpi" -n "$n" -genv LD_PRELOAD "$work/record.so" \
            -genv FARCALL_TRACE "$trace" "$1" >"$work/log" 2>&1 ;;
    esac
}

for mpi in openmpi mpich; do
    # Debian's compiler wrapper of OpenMPI may be installed without the headers.
    if ! echo "#include <mpi.h>" | "mpicc.$mpi" -x c -fsyntax-only - 2>/dev/null; then
        echo "SKIPPED $mpi: apt-get install openmpi-bin libopenmpi-dev mpich libmpich-dev"
        skipped=$((skipped + 1))
        continue
    fi
    "mpicc.$mpi" -shared -fPIC -O2 -Wall -Wextra -o "$work/record.so" record.c
    "mpicc.$mpi" -O2 -w -o "$work/exercise" tests/exercise.c
    omitted=(MPI_Igather MPI_Start)
    version=$(echo MPI_VERSION | "mpicc.$mpi" -include mpi.h -x c -E -P - | tail -n 1)
    ((version >= 4)) && omitted+=(MPI_Iallreduce_c)
    for n in 1 2 3 4 6 8; do
        trace=$work/$mpi-$n.goal
        record "$work/exercise" || { cat "$work/log"; failed=$((failed + 1)); continue; }
        for name in "${omitted[@]}"; do
            if ! grep -q "$name is not recorded" "$work/log"; then
                echo "$mpi $n ranks: $name is missing in the trace, and nobody says so"
                failed=$((failed + 1))
                continue 2
            fi
        done
        if result=$("$farcall" flow run --platform "hypercrossbar:8,bandwidth=1e9" \
            --pattern "goal:$trace" --json); then
            echo "$mpi $n ranks: $result"
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
        fi
    done
    n=2 trace=$work/spawn.goal
    "mpicc.$mpi" -O2 -w -o "$work/spawn" tests/spawn.c
    if ! record "$work/spawn"; then
        # The MPICH of Debian 12 starts no processes.
        echo "SKIPPED MPI_Comm_spawn of $mpi, which failed"
    elif [ "$(head -n 1 "$trace")" = "num_ranks 2" ]; then
        passed=$((passed + 1))
    else
        echo "$mpi: the trace is that of the process that MPI_Comm_spawn has started"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
