#include "test/support/linear.h"

#include <gtest/gtest.h>

namespace cantle::linear {
namespace {

using K = Verdict::Kind;
constexpr auto kAbsent = std::nullopt;

// Each by a client of its own, on one key.
Operation at(int64_t begin, int64_t end, Operation o) {
  o.key = "k";
  o.begin = begin;
  o.end = end;
  return o;
}
Operation from(int64_t begin, Operation o) {  // for ever
  o.outcome = Outcome::unknown;
  return at(begin, begin, std::move(o));
}
Operation failed(int64_t begin, int64_t end, Operation o) {
  o.outcome = Outcome::fail;
  return at(begin, end, std::move(o));
}
Operation put(std::string v) { return {.op = Kind::put, .input = std::move(v)}; }
Operation get(std::optional<std::string> v) { return {.op = Kind::get, .result = std::move(v)}; }
Operation del() { return {.op = Kind::del}; }
Operation append(std::string v) { return {.op = Kind::append, .input = std::move(v)}; }
Operation append(std::string v, size_t length) {
  return {.op = Kind::append, .input = std::move(v), .result = std::to_string(length)};
}
Operation incr(int by, std::optional<std::string> sum) {
  return {.op = Kind::incr, .input = std::to_string(by), .result = std::move(sum)};
}
Operation cas(std::optional<std::string> old, std::string v, bool refused = false) {
  return {.op = Kind::cas, .input = std::move(v), .expected = std::move(old), .refused = refused};
}

K kind(const std::vector<Operation>& h) { return check(h).kind; }

TEST(Linear, nothing_and_one_after_the_other) {
  EXPECT_EQ(kind({}), K::linearizable);
  EXPECT_EQ(kind({at(1, 2, get(kAbsent)), at(3, 4, put("a")), at(5, 6, get("a"))}), K::linearizable);
  EXPECT_EQ(kind({at(1, 2, put("a")), at(3, 4, get(kAbsent))}), K::violated);
}

TEST(Linear, a_stale_read_is_none_only_while_the_write_is_under_way) {
  EXPECT_EQ(kind({at(1, 2, put("a")), at(3, 6, put("b")), at(4, 5, get("a"))}), K::linearizable);
  EXPECT_EQ(kind({at(1, 2, put("a")), at(3, 6, put("b")), at(6, 7, get("a"))}),
            K::linearizable);  // equal: not in order
  EXPECT_EQ(kind({at(1, 2, put("a")), at(3, 6, put("b")), at(7, 8, get("a"))}), K::violated);
  // Seen once it stays seen.
  EXPECT_EQ(kind({at(1, 2, put("a")), at(3, 9, put("b")), at(4, 5, get("b")), at(6, 7, get("a"))}), K::violated);
}

TEST(Linear, a_lost_update) {
  EXPECT_EQ(kind({at(1, 2, put("a")), at(3, 4, put("b")), at(5, 6, get("b")), at(7, 8, get("a"))}), K::violated);
  EXPECT_EQ(kind({at(1, 2, incr(1, "1")), at(3, 4, incr(1, "1"))}), K::violated);
  EXPECT_EQ(kind({at(1, 5, put("a")), at(2, 4, put("b")), at(6, 7, get("a"))}), K::linearizable);
  EXPECT_EQ(kind({at(1, 5, put("a")), at(2, 4, put("b")), at(6, 7, get("a")), at(8, 9, get("b"))}), K::violated);
}

TEST(Linear, a_read_of_what_is_written_later_or_never) {
  EXPECT_EQ(kind({at(1, 2, get("a")), at(3, 4, put("a"))}), K::violated);
  EXPECT_EQ(kind({at(1, 3, get("a")), at(3, 4, put("a"))}), K::linearizable);
  EXPECT_EQ(kind({at(1, 2, put("a")), at(3, 4, get("b"))}), K::violated);
  EXPECT_EQ(kind({at(1, 2, get("a")), from(3, put("a"))}), K::violated);
}

TEST(Linear, what_failed_did_not_happen) {
  EXPECT_EQ(kind({failed(1, 2, put("a")), at(3, 4, get(kAbsent))}), K::linearizable);
  EXPECT_EQ(kind({failed(1, 2, put("a")), at(3, 4, get("a"))}), K::violated);
  EXPECT_EQ(kind({failed(1, 2, get("a"))}), K::linearizable);
}

TEST(Linear, a_write_of_unknown_outcome_is_seen_later_or_never) {
  const auto old = at(1, 2, put("a")), unknown = from(3, put("b"));
  EXPECT_EQ(kind({old, unknown, at(8, 9, get("a"))}), K::linearizable);
  EXPECT_EQ(kind({old, unknown, at(8, 9, get("b"))}), K::linearizable);
  EXPECT_EQ(kind({old, unknown, at(5, 6, get("a")), at(8, 9, get("b"))}), K::linearizable);
  EXPECT_EQ(kind({old, unknown, at(10, 11, put("c")), at(12, 13, get("c")), at(14, 15, get("b"))}), K::linearizable);
  // Seen, it happened, and does not go away or happen again.
  EXPECT_EQ(kind({old, unknown, at(5, 6, get("b")), at(8, 9, get("a"))}), K::violated);
  EXPECT_EQ(kind({old, unknown, at(5, 6, get("b")), at(7, 8, put("c")), at(9, 10, get("b"))}), K::violated);
  EXPECT_EQ(kind({from(1, get("x")), at(2, 3, get(kAbsent))}), K::linearizable);
  EXPECT_EQ(kind({old, from(3, del()), at(4, 5, get("a")), at(6, 7, get(kAbsent))}), K::linearizable);
  EXPECT_EQ(kind({old, from(3, del()), at(4, 5, get(kAbsent)), at(6, 7, get("a"))}), K::violated);
}

TEST(Linear, maybes_lean_on_each_other) {
  EXPECT_EQ(kind({from(1, put("a")), from(2, cas("a", "b")), at(5, 6, get("b"))}), K::linearizable);
  EXPECT_EQ(kind({from(1, put("a")), from(2, cas("a", "b")), at(5, 6, get("b")), at(7, 8, get("a"))}), K::violated);
  EXPECT_EQ(kind({from(2, cas("a", "b")), at(5, 6, get("b"))}), K::violated);
  EXPECT_EQ(kind({from(1, append("a")), from(2, append("b")), at(5, 6, get("ba"))}), K::linearizable);
  EXPECT_EQ(kind({from(1, append("a")), from(2, append("b")), at(5, 6, get("b")), at(7, 8, get("ab"))}), K::violated);
}

TEST(Linear, an_incr_happens_once) {
  EXPECT_EQ(kind({at(1, 5, incr(1, "2")), at(2, 4, incr(1, "1")), at(6, 7, get("2"))}), K::linearizable);
  EXPECT_EQ(kind({at(1, 2, incr(1, "1")), at(3, 4, get("2"))}), K::violated);
  EXPECT_EQ(kind({at(1, 2, incr(1, "1")), from(3, incr(1, "2")), at(5, 6, incr(1, "3"))}), K::linearizable);
  EXPECT_EQ(kind({at(1, 2, incr(1, "1")), from(3, incr(1, "2")), at(5, 6, incr(1, "2"))}), K::linearizable);
  EXPECT_EQ(kind({at(1, 2, incr(1, "1")), from(3, incr(1, "2")), at(5, 6, incr(1, "4"))}), K::violated);
  EXPECT_EQ(kind({at(1, 2, incr(3, kAbsent)), at(3, 4, get("3"))}), K::linearizable);  // the sum was not said
  EXPECT_EQ(kind({at(1, 2, put("-5")), at(3, 4, incr(-3, "-8"))}), K::linearizable);
}

TEST(Linear, an_incr_of_what_is_no_number_or_that_overflows_has_no_answer) {
  EXPECT_EQ(kind({at(1, 2, put("x")), at(3, 4, incr(1, "1"))}), K::violated);
  EXPECT_EQ(kind({at(1, 2, put("x")), from(3, incr(1, kAbsent)), at(5, 6, get("x"))}), K::linearizable);
  EXPECT_EQ(kind({at(1, 2, put("9223372036854775807")), at(3, 4, incr(1, kAbsent))}), K::violated);
  EXPECT_EQ(kind({at(1, 2, put("")), at(3, 4, incr(1, "1"))}), K::violated);
}

TEST(Linear, of_swaps_that_ask_for_the_same_one_wins) {
  const auto old = at(1, 2, put("a"));
  EXPECT_EQ(kind({old, at(3, 6, cas("a", "b")), at(3, 6, cas("a", "c", true)), at(7, 8, get("b"))}), K::linearizable);
  EXPECT_EQ(kind({old, at(3, 6, cas("a", "b")), at(3, 6, cas("a", "c")), at(7, 8, get("b"))}), K::violated);
  EXPECT_EQ(kind({old, at(3, 6, cas("a", "b", true)), at(7, 8, get("a"))}), K::violated);  // refused, but it was
  EXPECT_EQ(kind({at(1, 2, cas(kAbsent, "a")), at(3, 4, cas(kAbsent, "b", true))}), K::linearizable);
  EXPECT_EQ(kind({at(1, 2, cas(kAbsent, "a")), at(3, 4, cas(kAbsent, "b"))}), K::violated);
  EXPECT_EQ(kind({old, at(3, 6, cas("a", "b")), at(3, 6, cas("b", "a")), at(7, 8, get("a"))}), K::linearizable);
  EXPECT_EQ(kind({old, from(3, cas("a", "b")), at(5, 6, cas("a", "c", true)), at(7, 8, get("a"))}), K::violated);
}

TEST(Linear, an_append_that_was_told_the_length) {
  EXPECT_EQ(kind({at(1, 2, append("ab", 2)), at(3, 4, append("c", 3)), at(5, 6, get("abc"))}), K::linearizable);
  EXPECT_EQ(kind({at(1, 2, append("ab", 2)), at(3, 4, append("c", 1))}), K::violated);
  // Whose end nobody reads, too: it was done twice.
  EXPECT_EQ(kind({at(1, 2, append("a", 1)), at(3, 4, append("b", 3))}), K::violated);
  EXPECT_EQ(kind({at(1, 9, append("ab", 3)), at(2, 8, append("c", 1))}), K::linearizable);
  EXPECT_EQ(kind({at(1, 9, append("ab", 2)), at(2, 8, append("c", 1))}), K::violated);
  // One of unknown outcome is told by what the others measured.
  EXPECT_EQ(kind({from(1, append("xx")), at(3, 4, append("a", 3)), at(5, 6, get("xxa"))}), K::linearizable);
  EXPECT_EQ(kind({from(1, append("xx")), at(3, 4, append("a", 1)), at(5, 6, append("b", 4))}), K::linearizable);
  EXPECT_EQ(kind({from(1, append("xx")), at(3, 4, append("a", 1)), at(5, 6, append("b", 3))}), K::violated);
  EXPECT_EQ(kind({at(1, 2, append("a", 1)), at(3, 4, del()), at(5, 6, append("b", 1))}), K::linearizable);
}

TEST(Linear, a_delete_and_an_append) {
  EXPECT_EQ(kind({at(1, 2, put("a")), at(3, 4, del()), at(5, 6, get(kAbsent))}), K::linearizable);
  EXPECT_EQ(kind({at(1, 2, put("a")), at(3, 4, del()), at(5, 6, get("a"))}), K::violated);
  EXPECT_EQ(kind({at(1, 2, put("a")), at(3, 4, del()), at(5, 6, get(""))}), K::violated);  // empty is not absent
  EXPECT_EQ(kind({at(1, 2, append("a")), at(3, 4, del()), at(5, 6, append("b")), at(7, 8, get("b"))}), K::linearizable);
  EXPECT_EQ(kind({at(1, 4, append("a")), at(1, 4, append("b")), at(5, 6, get("ba"))}), K::linearizable);
  EXPECT_EQ(kind({at(1, 2, append("a")), at(3, 4, append("b")), at(5, 6, get("ba"))}), K::violated);
  EXPECT_EQ(kind({at(1, 2, append("a")), at(5, 6, get("aa"))}), K::violated);
}

TEST(Linear, keys_are_apart_and_the_first_that_is_wrong_is_named) {
  std::vector<Operation> h;
  for (const char* key : {"a", "b", "c"})
    for (auto o : {at(1, 2, put("v")), at(3, 4, get(*key == 'a' ? "v" : "w"))}) {
      o.key = key;
      h.push_back(o);
    }
  const auto v = check(h);
  EXPECT_EQ(v.kind, K::violated);
  EXPECT_EQ(v.key, "b");
  EXPECT_EQ(v.keys, 2u);
}

TEST(Linear, a_failure_names_the_shortest_prefix_and_what_is_around_it) {
  std::vector<Operation> h;
  for (int i = 0; i < 40; i += 2) {
    h.push_back(at(100 * i, 100 * i + 50, put(std::to_string(i))));
    h.push_back(at(100 * i + 60, 100 * i + 90, get(std::to_string(i))));
  }
  h.push_back(at(1810, 1890, put("late")));
  h.push_back(at(2065, 2070, get("12")));  // the 20 that stands there then is the only right answer
  const auto v = check(h);
  EXPECT_EQ(v.kind, K::violated);
  EXPECT_EQ(v.prefix, 23u);
  EXPECT_EQ(v.text.substr(0, v.text.find('\n')),
            "key \"k\": no order explains the first 23 of 42 answers; the last of them is marked:");
  EXPECT_NE(v.text.find("\n> get = \"12\" by 0, 2065..2070 ok"), std::string::npos) << v.text;
  EXPECT_NE(v.text.find("\n  put \"12\" by 0, 1200..1250 ok"), std::string::npos) << v.text;    // where it is from
  EXPECT_NE(v.text.find("\n  put \"20\" by 0, 2000..2050 ok"), std::string::npos) << v.text;    // what it should be
  EXPECT_NE(v.text.find("\n  get = \"20\" by 0, 2060..2090 ok"), std::string::npos) << v.text;  // what it overlaps
  EXPECT_EQ(v.text.find("put \"0\""), std::string::npos) << v.text;
  EXPECT_EQ(v.text.find("put \"22\""), std::string::npos) << v.text;
}

TEST(Linear, of_many_that_are_unknown_a_failure_shows_the_last_and_the_one_that_was_seen) {
  std::vector<Operation> h;
  for (int i = 1; i <= 30; ++i) h.push_back(from(i, put(std::to_string(i))));
  h.push_back(at(40, 41, get("3")));
  h.push_back(at(42, 43, put("x")));
  h.push_back(at(44, 45, get("3")));
  const auto v = check(h);
  EXPECT_EQ(v.kind, K::violated);
  EXPECT_NE(v.text.find("\n  put \"3\" by 0, 3.. unknown"), std::string::npos) << v.text;
  EXPECT_NE(v.text.find("\n  put \"21\" by 0"), std::string::npos) << v.text;
  EXPECT_EQ(v.text.find("put \"20\""), std::string::npos) << v.text;
  EXPECT_NE(v.text.find("\n  and 19 earlier ones of unknown outcome"), std::string::npos) << v.text;
}

TEST(Linear, what_takes_too_long_is_undecided_and_never_fine) {
  // Whether a sum of some of these numbers is the one that was seen.
  std::vector<Operation> h;
  for (int i = 0; i < 24; ++i) h.push_back(from(1, incr(1'000'003 * (i + 1) * (i + 7) % 7'654'321, kAbsent)));
  h.push_back(at(5, 6, get("-1")));
  auto v = check(h, {.states_max = 10'000});
  EXPECT_EQ(v.kind, K::undecided);
  EXPECT_EQ(v.key, "k");
  EXPECT_EQ(v.states, 10'000u);
  // Another key that is wrong is wrong nevertheless.
  h.push_back(at(1, 2, get("x")));
  h.back().key = "z";
  v = check(h, {.states_max = 10'000});
  EXPECT_EQ(v.kind, K::violated);
  EXPECT_EQ(v.key, "z");
}

TEST(Linear, operations_for_a_person) {
  EXPECT_EQ(to_string(at(1, 2, put("a\n"))), "put \"a%0a\" by 0, 1..2 ok");
  EXPECT_EQ(to_string(from(1, cas(kAbsent, "b"))), "cas absent -> \"b\" by 0, 1.. unknown");
  EXPECT_EQ(to_string(at(1, 2, cas("a", "b", true))), "cas \"a\" -> \"b\" refused by 0, 1..2 ok");
  EXPECT_EQ(to_string(at(1, 2, incr(-1, "4"))), "incr -1 = \"4\" by 0, 1..2 ok");
  EXPECT_EQ(to_string(failed(1, 2, del())), "del by 0, 1..2 fail");
  EXPECT_EQ(to_string(at(1, 2, get(std::string(100, 'x')))),
            "get = \"" + std::string(60, 'x') + "\"... (100 bytes) by 0, 1..2 ok");
}

}  // namespace
}  // namespace cantle::linear
