// linear: is a history of a record store linearizable, key by key?
//
//   auto verdict = linear::check(operations);
//   if (verdict.kind != linear::Verdict::Kind::linearizable) puts(verdict.text.c_str());
//
// A history says of each operation who asked for it, between which two instants, and what came of it. It is
// linearizable when some order explains every answer: of two operations of which one ended before the other began, that
// one is first.
//
// The record: absent at first (what was there before is said by a put that ends before all else begins), then bytes.
// `incr` adds a signed 64-bit number to the decimal text that is there, an absent record counting as 0; `append` adds
// to the end, an absent record counting as empty. Neither an incr of what is no number nor one that overflows can have
// been answered.
//
// Outcomes
//   ok       it happened, once, at an instant between begin and end, and the answer is what it saw
//   fail     it did not happen
//   unknown  it happened once, at any instant after its begin, or never; its end and its answer mean nothing
//
// How: depth first through the orders, with a memo of (what has happened, the record then), after Wing, Gong and Lowe.
// What keeps that short is said, with the reason why no order is missed, in linear_search.cc.
//
// Units: instants are nanoseconds of one clock; two that are equal are not in order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cantle::linear {

enum class Kind : uint8_t { get, put, del, cas, incr, append };
enum class Outcome : uint8_t { ok, fail, unknown };

struct Operation {
  std::string key{};
  uint64_t process = 0;
  Kind op = Kind::get;
  std::string input{};  // put, cas: the value; incr: the number added, as decimal text; append: what is added
  std::optional<std::string> expected{};  // cas: the value that it asks for, or absence
  // get: the value, or absence; incr: the new number; append: the new length, in decimal; of both none: it is not known
  std::optional<std::string> result{};
  bool refused = false;        // cas, outcome ok: the answer was that the record is not as expected
  int64_t begin = 0, end = 0;  // begin ≤ end, unless the outcome is unknown
  Outcome outcome = Outcome::ok;
  friend bool operator==(const Operation&, const Operation&) = default;
};

struct Options {
  uint64_t states_max = 2'000'000;  // of one key; each takes about 100 bytes
};

struct Verdict {
  // undecided: a key needed more states than states_max. Never more than that is claimed: no key was seen to be wrong.
  enum class Kind : uint8_t { linearizable, violated, undecided } kind = Kind::linearizable;
  std::string key;      // not linearizable: the first such key in order; the others are not looked at
  std::string text;     // the same for a person: the shortest prefix that no order explains, and what is around it
  size_t prefix = 0;    // violated: how many answers of that key, in order of their end, no order explains together
  size_t keys = 0;      // looked at
  uint64_t states = 0;  // explored, all keys together
};

Verdict check(const std::vector<Operation>& history, const Options& options = {});

// "put "v" by 3, 1000..2000 ok": one operation for a person.
std::string to_string(const Operation& operation);

}  // namespace cantle::linear
