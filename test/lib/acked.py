#!/usr/bin/python3
"""acked.py DUMP HISTORY... : every acknowledged write of the histories is in the dump, and nothing that nobody wrote.

DUMP is `partc scan --json` or `partc get --json` output: JSON lines with key, value, version.
HISTORY is what `partc bench --history` wrote: JSON lines with op, key, value, outcome, version.

The rule for a push table: of the writes of one key the one with the newest version wins. So the record must have a
version at or above that of every acknowledged write, and the value of the write of that version; a version that no
history names may only belong to a write whose outcome is unknown and whose version was not told. Exit 1 with the
first differences otherwise.
"""
import json
import sys


def lines(path):
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if not line.strip():
                continue
            try:
                yield json.loads(line)
            except ValueError:
                # A writer that was killed may leave half a line at the end, never in the middle.
                if f.readline():
                    sys.exit(f"{path}:{number}: not JSON")


def name(event, field):
    return event.get(field) if event.get(field) is not None else event.get(field + "_b64")


def main():
    dump = {name(r, "key"): r for r in lines(sys.argv[1])}
    newest, by_version, unknown, acked = {}, {}, {}, 0
    for path in sys.argv[2:]:
        for e in lines(path):
            if e["op"] == "get":
                continue
            key, value, version = name(e, "key"), name(e, "value"), e.get("version") or ""
            if version:
                by_version[(key, version)] = value
            if e["outcome"] == "ok":
                acked += 1
                newest[key] = max(newest.get(key, ""), version)
            elif e["outcome"] == "unknown":
                unknown.setdefault(key, set()).add(value)
    wrong = []
    for key, version in newest.items():
        record = dump.get(key)
        if record is None:
            wrong.append(f"{key}: acknowledged at {version}, not there")
            continue
        if record["version"] < version:
            wrong.append(f"{key}: acknowledged at {version}, the table has the older {record['version']}")
    for key, record in dump.items():
        value = name(record, "value")
        expected = by_version.get((key, record["version"]))
        if expected is not None and expected != value:
            wrong.append(f"{key}: version {record['version']} has another value than was written")
        if expected is None and value not in unknown.get(key, set()):
            wrong.append(f"{key}: nobody wrote version {record['version']}")
    if acked == 0:
        wrong.append("no write was acknowledged: the test proves nothing")
    print(f"acknowledged={acked} keys={len(dump)} unknown={sum(len(v) for v in unknown.values())} wrong={len(wrong)}")
    for line in wrong[:20]:
        print(line)
    sys.exit(1 if wrong else 0)


main()
