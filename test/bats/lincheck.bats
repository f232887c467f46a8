#!/usr/bin/env bats
# lincheck: histories as the bench writes them, and what is wrong with them.
load ../lib/cluster

setup() {
  PATH=${CANTLE_BIN%/*}/test:$PATH
  H=$BATS_TEST_TMPDIR/h.jsonl
}

# op KIND BEGIN END MEMBERS [OUTCOME]: one line of a history of the key k.
op() {
  printf '{"process":0,"op":"%s","key":"k",%s"begin_ns":%s,"end_ns":%s,"outcome":"%s"}\n' "$1" "$4" "$2" "$3" "${5:-ok}"
}

@test "a history with every operation is linearizable" {
  {
    op get 1 2 '"result":null,'
    op put 3 4 '"value":"a",'
    op cas 5 6 '"value":"b","expect":"a","result":true,'
    op cas 7 8 '"value":"c","expect":"a","result":false,'
    op append 9 10 '"value":"ü\n",'
    op get 11 12 '"result":"bü\n",'
    op del 13 14 ''
    op cas 15 16 '"value":"5","expect":null,'
    op incr 17 18 '"value":-7,"result":"-2",'
    op incr 19 20 '"value":"1",' unknown
    op incr 21 22 '"value":1,"result":0,'
    op put 23 24 '"value":"no",' fail
    op put 25 26 '"value":"%ff","value_b64":"/w==",'
    op get 27 28 '"result":null,' fail
    op get 29 null '"result":null,' unknown
    op get 31 32 '"value":"%ff","value_b64":"/w==",'
  } >"$H"
  run -0 lincheck "$H"
  assert_output --partial "linearizable: 16 operations, 1 keys, "
  run -0 lincheck - <"$H"
}

@test "one that is not says where, in several files, too" {
  op put 1 2 '"value":"a",' >"$H"
  op get 3 4 '"value":"b",' >"$H.2"
  run -1 lincheck "$H" "$H.2"
  assert_line 'not linearizable: key "k": no order explains the first 2 of 2 answers; the last of them is marked:'
  assert_line '  put "a" by 0, 1..2 ok'
  assert_line '> get = "b" by 0, 3..4 ok'
  op put 2 9 '"value":"b",' unknown >"$H.3"
  run -0 lincheck "$H" "$H.2" "$H.3"
}

@test "each answer counts" {
  local before
  before=$(op put 1 2 '"value":"5",')
  for line in "$(op get 3 4 '"result":null,')" "$(op get 3 4 '"value":"5","result":"6",')" \
    "$(op get 3 4 '"value":"5","value_b64":"NQ==","result":"%35","result_b64":"NA==",')" \
    "$(op cas 3 4 '"value":"7","expect":"6",')" "$(op cas 3 4 '"value":"7","expect":"5","result":false,')" \
    "$(op cas 3 4 '"value":"7","expect":null,"result":null,')" "$(op incr 3 4 '"value":1,"result":7,')"; do
    printf '%s\n%s\n' "$before" "$line" >"$H"
    run -1 lincheck "$H"
    assert_line --partial '> '
  done
}

@test "what takes too long is undecided, with 3" {
  {
    for i in $(seq 24); do op incr 1 2 "\"value\":$((i * i * 1009))," unknown; done
    op get 3 4 '"result":"-1",'
  } >"$H"
  run -3 lincheck --states 1000 "$H"
  assert_output 'undecided: key "k": undecided after 1000 states'
}

@test "bad input is 2, with the file, the line and what" {
  while IFS='|' read -r want line; do
    {
      op put 1 2 '"value":"a",'
      printf '%s\n' "$line"
    } >"$H"
    run -2 lincheck "$H"
    assert_output "lincheck: $H:2: $want"
  done <<END
not JSON: '{' is missing at byte 1|
op is missing|{}
op is none of get, put, del, cas, incr, append|{"op":"read"}
outcome is missing|{"op":"get"}
outcome is none of ok, fail, unknown|{"op":"get","outcome":true}
key is missing|{"op":"get","outcome":"ok"}
key is null|{"op":"get","outcome":"ok","key":null}
process is missing|{"op":"get","outcome":"ok","key":""}
process is no whole number that fits|{"op":"get","outcome":"ok","key":"","process":-1}
begin_ns is no whole number that fits|{"op":"get","outcome":"ok","key":"","process":1,"begin_ns":1.5}
end_ns is missing|{"op":"get","outcome":"ok","key":"","process":1,"begin_ns":1}
end_ns is before begin_ns|$(op get 2 1 '"result":"a",')
value is missing|$(op get 3 4 '')
value is missing|$(op put 3 4 '' unknown)
value is null|$(op put 3 4 '"value":null,')
value is neither text nor null|$(op append 3 4 '"value":1,')
value is no whole number that fits|$(op incr 3 4 '"value":"9223372036854775808",')
expect is missing|$(op cas 3 4 '"value":"a",')
result of a cas is none of true, false, null|$(op cas 3 4 '"value":"a","expect":null,"result":"a",')
key_b64 is not base64: the length is no multiple of four|$(op del 3 4 '"key_b64":"x",')
key stands there twice|$(op del 3 4 '"key":"x",')
END
  printf '{}' >"$H"
  run -2 lincheck "$H"
  assert_output "lincheck: $H:1: the line does not end: the file was cut"
  run -2 lincheck "$H.none"
  assert_output --partial "$H.none: cannot be opened: No such file"
  run -2 lincheck "$BATS_TEST_TMPDIR"
}

@test "wrong usage is 2" {
  run -2 lincheck
  assert_output --partial "usage:"
  run -2 lincheck --states 0 "$H"
  run -2 lincheck --states
  run -2 lincheck --bogus "$H"
  assert_output --partial "unknown flag --bogus"
}
