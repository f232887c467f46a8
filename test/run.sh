#!/bin/bash
# Runs test programs and prints one closing line: N passed, N failed, N skipped.
#
#   test/run.sh DIR SUITE... [DIR SUITE...]
#
# DIR is a build directory (build/release): what has a slash in it. SUITE is one of
#   unit            every DIR/test/unit_*
#   models[:long]   the exhaustive models of protocol rules; long: with wider bounds
#   sim[:SEEDS]     the simulation, with that many seeds; narrow ones with a quarter of that, 2,000 at most
#   mutants         the simulation's mutants (a TESTING=1 build)
#   conformance     the coordination backends
#   bats[:FILTER]   test/bats/*.bats;  faults[:FILTER]  test/faults/*.bats; FILTER is a tag expression
# beside=SUITE, of one with a single program: what comes after it runs beside it, and has the processors first (SCHED_IDLE).
# Bats waits more than it works.
# Output of each suite goes to DIR/test/log/SUITE.log and, where something failed, to stdout.
#
# What a sanitizer says goes to files below DIR/test/log/reports, whoever started the program and whatever becomes of its
# exit status; each of them is a failure.
set -uo pipefail
passed=0 failed=0 skipped=0 dir='' search=$PATH
beside='' waiting=()

# From here on the programs of that build.
use_build() {
  dir=$1 log=$1/test/log
  mkdir -p "$log"
  export CANTLE_BIN=$PWD/$dir/bin
  export PATH="$CANTLE_BIN:$search"
  export SAN_REPORTS=$PWD/$log/reports
  rm -rf "$SAN_REPORTS"
  mkdir -p "$SAN_REPORTS"
  # test/lib/cluster.bash gives each Bats file a directory of its own.
  export SAN_FLAGS=exitcode=66:detect_stack_use_after_return=1:second_deadlock_stack=1:history_size=4:print_stacktrace=1
  local tool
  for tool in ASAN LSAN UBSAN TSAN; do export "${tool}_OPTIONS=$SAN_FLAGS:log_path=$SAN_REPORTS/report"; done
  LSAN_OPTIONS+=":suppressions=$PWD/test/lib/lsan.supp:print_suppressions=0"
}

# What was reported since use_build.
add_reports() {
  local report n=0
  while IFS= read -r report; do
    n=$((n + 1))
    echo "--- ${report#"$PWD/"}"
    head -n 60 "$report"
  done < <([ -z "$dir" ] || find "$SAN_REPORTS" -type f -name 'report.*' -size +0)
  if [ "$n" != 0 ]; then
    echo "reports:                 $n failed"
    failed=$((failed + n))
  fi
}

add() {
  passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

# One GoogleTest program.
gtest() {
  local name=$1 out=$log/$1.log start=$SECONDS
  shift
  if [ -n "$beside" ]; then
    timeout "${SUITE_TIMEOUT:-3000}" chrt --idle 0 "$@" >"$out" 2>&1 &
    waiting+=("$! $name $out $EPOCHSECONDS")
    return
  fi
  timeout "${SUITE_TIMEOUT:-3000}" "$@" >"$out" 2>&1
  counted $? "$name" "$out" $((SECONDS - start))
}
# Counts from its closing lines; a crash counts as one failure.
counted() {
  local status=$1 name=$2 out=$3 seconds=$4 p f s
  p=$(sed -nE 's/^\[  PASSED  \] ([0-9]+) tests?\.$/\1/p' "$out" | tail -1)
  f=$(sed -nE 's/^\[  FAILED  \] ([0-9]+) tests?, listed below:$/\1/p' "$out" | tail -1)
  s=$(sed -nE 's/^\[  SKIPPED \] ([0-9]+) tests?, listed below:$/\1/p' "$out" | tail -1)
  if [ "$status" != 0 ] && [ "${f:-0}" = 0 ]; then f=1; fi
  add "${p:-0}" "${f:-0}" "${s:-0}"
  printf '%-24s %s passed, %s failed, %s skipped  (%ss)\n' "$name:" "${p:-0}" "${f:-0}" "${s:-0}" "$seconds"
  grep -hE '^(sim: |  skipped: |mutant )' "$out"
  if [ "${f:-0}" != 0 ]; then
    grep -E '^\[  FAILED  \]|Failure|error|violation|CHECK|SUMMARY|<0>' "$out" | head -40
    tail -60 "$out"
  fi
}

# What runs beside the rest has ended, and is counted.
await_beside() {
  local pid name out start status
  while [ "${#waiting[@]}" != 0 ]; do
    read -r pid name out start <<<"${waiting[0]}"
    wait "$pid"
    status=$?
    waiting=("${waiting[@]:1}")
    counted "$status" "$name" "$out" $(($(stat -c %Y "$out") - start))
  done
}
stop_beside() {
  local job
  for job in "${waiting[@]}"; do kill "${job%% *}"; done
}
trap stop_beside EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

bats_dir() {
  local name=$1 tests=$2 filter=$3 out=$log/$1.tap start=$SECONDS
  local args=(-F tap -T -r)
  [ -n "$filter" ] && args+=(--filter-tags "$filter")
  if command -v parallel >/dev/null; then args+=(--jobs 2 --no-parallelize-within-files); fi
  BATS_TEST_TIMEOUT=${BATS_TEST_TIMEOUT:-300} timeout "${SUITE_TIMEOUT:-3000}" bats "${args[@]}" "$tests" >"$out" 2>"$out.err"
  local status=$? p f s
  p=$(grep -E '^ok ' "$out" | grep -cvE '# skip')
  s=$(grep -cE '^ok .*# skip' "$out")
  f=$(grep -cE '^not ok ' "$out")
  if [ "$status" != 0 ] && [ "$f" = 0 ]; then f=1; fi
  if [ "$p" = 0 ] && [ "$f" = 0 ]; then f=1; echo "$name: no test ran"; fi
  add "$p" "$f" "$s"
  printf '%-24s %s passed, %s failed, %s skipped  (%ss)\n' "$name:" "$p" "$f" "$s" $((SECONDS - start))
  grep -E '^ok .*# skip' "$out"
  if [ "$f" != 0 ]; then
    awk '/^not ok /{show=1} /^ok /{show=0} show' "$out" | head -300
    tail -20 "$out.err"
  fi
}

for suite in "$@"; do
  if [[ $suite == */* ]]; then
    await_beside
    add_reports
    if [ $# -gt 1 ]; then echo "$suite"; fi
    use_build "$suite"
    continue
  fi
  beside=
  [[ $suite == beside=* ]] && beside=yes suite=${suite#beside=}
  kind=${suite%%:*} arg=
  [[ $suite == *:* ]] && arg=${suite#*:}
  case $kind in
    unit) for t in "$dir"/test/unit_*; do [[ -x $t && $t != *.* ]] && gtest "$(basename "$t")" "$t" --gtest_color=no; done ;;
    models) MODELS=$arg gtest models "$dir/test/models" --gtest_color=no ;;
    sim) SEEDS=${arg:-1000} NARROW_SEEDS=$((${arg:-1000} < 8000 ? ${arg:-1000} / 4 : 2000)) gtest sim "$dir/test/sim" --gtest_color=no ;;
    mutants) gtest mutants "$dir/test/sim" --mutants ;;
    conformance) gtest conformance "$dir/test/conformance" --gtest_color=no ;;
    bats | faults) bats_dir "$kind" "test/$kind" "$arg" ;;
    *) echo "test/run.sh: unknown suite $suite"; failed=$((failed + 1)) ;;
  esac
done
await_beside
add_reports
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
