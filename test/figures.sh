#!/bin/sh
# Counts how large the project is and how far a reader walks through it. With a number, also prints 40 doc comments that this seed picks,
# so that somebody can count those that have to be read twice.
set -eu
cd "$(dirname "$0")/.."

row() { printf '%-80s %s\n' "$1" "$2"; }
lines() { xargs cat | wc -l | tr -d ' '; }
# matches PATTERN FOLDER…: how often a pattern occurs in Go files that are not tests.
matches() { pattern=$1; shift; grep -rEo --include='*.go' --exclude='*_test.go' -h -- "$pattern" "$@" | wc -l | tr -d ' '; }
# files HEADING [LAST]: the different Go files that architecture.md links to between a heading and the next one, or the line with LAST.
files() {
  awk -v h="## $1" -v last="${2:-}" '/^## / { on = $0 == h } on; last != "" && index($0, last) { exit }' docs/architecture.md |
    grep -oE '\.\./[a-z/_]+\.go' | sort -u | wc -l | tr -d ' '
}

product() { git ls-files '*.go' | grep -vE '_test\.go$|^test/|(^|/)[a-z]*test/|^bench/|^examples/|^deploy/'; }

row 'lines of Go (no tests, test kits, bench, examples, deploy)' "$(product | lines)"
row 'lines of Go in _test.go files' "$(git ls-files '*_test.go' | lines)"
row 'lines of Go in test kits (test/ and folders that end in test, no _test.go)' \
  "$(git ls-files '*.go' | grep -E '^test/|(^|/)[a-z]*test/' | grep -v '_test\.go$' | lines)"
row 'deciders: the one of open runs, and the one of recorded runs' "$(matches '^func .* Find\(d \*(fold\.)?Decoded\)' pkg)"
row 'methods of partition.Processor, with those of its embedded ledger' "$(matches '^func \([a-z]+ \*?(Processor|ledger)\)' pkg/compactor/partition)"
row 'files that architecture.md names for a delta until its run goes on' "$(files 'The way of an event' '| the run goes on')"
row '... until it is committed, with what some events take besides' "$(files 'The way of an event')"
row 'files that architecture.md names for GET history' "$(files 'The way of a read')"
row 'budgets and pools for fair shares' "$(matches 'share\.NewPool(Of)?\(' pkg internal)"
row 'places that fetch from Kafka, two of them as members of a group' "$(matches '(PollRecords|PollFetches|NewPtrFetchRequest)\(' pkg internal)"
row 'readers of SSE' "$(matches '^func newSSE\(' pkg)"
row 'publishers of ingest, which share one writer' "$(matches '\.newWriter\(' pkg/ingest)"
row 'keys of settings, without skein dev' \
  "$(sed '/^## skein dev/,$d' docs/configuration.md | grep -oE '^\| `--[a-z-]+' | sort -u | wc -l | tr -d ' ')"
row 'words in docs/*.md' "$(cat docs/*.md | wc -w | tr -d ' ')"
row 'direct module requirements' "$(sed -n '/^require/,/^)/p' go.mod | grep -vcE '// indirect|^require|^\)')"

[ $# -eq 0 ] || product | xargs awk -v seed="$1" '
  BEGIN { srand(seed) }
  FNR == 1 { text = "" }
  /^\t*\/\/ / { sub(/^\t*\/\/ /, ""); text = text == "" ? FILENAME ":" FNR ": " $0 : text " " $0; next }
  text != "" { if (/^\t*(func|type|const|var|[A-Za-z]+[ ,].*)/) all[n++] = text; text = "" }
  END { for (i = 0; i < 40 && n > 0; i++) { k = int(rand() * n); print ""; print all[k]; all[k] = all[--n] } }'
