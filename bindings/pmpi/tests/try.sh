#!/usr/bin/env bash
# Records tests/exercise.c with every MPI that is installed and simulates the trace.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
farcall=${FARCALL:-../../target/release/farcall}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export FARCALL_TRACE_CALC=0
passed=0 failed=0 skipped=0
for mpi in openmpi mpich; do
    # Debian's compiler wrapper of OpenMPI may be installed without the headers.
    if ! echo "#include <mpi.h>" | "mpicc.$mpi" -x c -fsyntax-only - 2>/dev/null; then
        echo "SKIPPED $mpi: apt-get install openmpi-bin libopenmpi-dev mpich libmpich-dev"
        skipped=$((skipped + 1))
        continue
    fi
    "mpicc.$mpi" -shared -fPIC -O2 -Wall -Wextra -o "$work/record.so" record.c
    "mpicc.$mpi" -O2 -w -o "$work/exercise" tests/exercise.c
    for n in 1 2 3 4 6 8; do
        trace=$work/$mpi-$n.goal
        case $mpi in
            openmpi) timeout 60 "mpirun.$mpi" --allow-run-as-root --oversubscribe -n "$n" \
                -x "LD_PRELOAD=$work/record.so" -x "FARCALL_TRACE=$trace" -x FARCALL_TRACE_CALC \
                "$work/exercise" >"$work/log" 2>&1 ;;
            mpich) timeout 60 "mpirun.$mpi" -n "$n" -genv LD_PRELOAD "$work/record.so" \
                -genv FARCALL_TRACE "$trace" "$work/exercise" >"$work/log" 2>&1 ;;
        esac || { cat "$work/log"; failed=$((failed + 1)); continue; }
        if ! grep -q "MPI_Igather is not recorded" "$work/log"; then
            echo "$mpi $n ranks: MPI_Igather is missing in the trace, and nobody says so"
            failed=$((failed + 1))
            continue
        fi
        if result=$("$farcall" flow run --platform "hypercrossbar:8,bandwidth=1e9" \
            --pattern "goal:$trace" --json); then
            echo "$mpi $n ranks: $result"
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
        fi
    done
done
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
