#!/bin/bash
# Mutants: every MUTANT("name") in the machines stands in the table that the simulation runs (test/sim/mutants.cc), and
# the other way round: one that is not there is never tried. Prints each that is missing; exit 1 if any.
set -euo pipefail
cd "$(dirname "$0")/../.."

in_code=$(grep -rhoE 'MUTANT\("[a-z0-9_]+"\)' lib cmd --include='*.h' --include='*.cc' | sed -E 's/.*"(.*)".*/\1/' | sort -u)
in_table=$(grep -oE '^    \{"[a-z0-9_]+"' test/sim/mutants.cc | sed -E 's/.*"(.*)"/\1/' | sort -u)
missing=$(comm -3 <(echo "$in_code") <(echo "$in_table") | sed -E 's/^\t(.*)/\1: in the table of test\/sim\/mutants.cc, in no machine/; t; s/$/: not in the table of test\/sim\/mutants.cc/')
[ -z "$missing" ] && exit 0
echo "$missing"
exit 1
