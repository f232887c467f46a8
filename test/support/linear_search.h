// search: the innermost part of linear.h, the history of one key from a state that is known.
#pragma once

#include "test/support/linear.h"

namespace cantle::linear {

using State = std::optional<std::string>;

// An operation with the interval that counts for it.
struct Item {
  const Operation* op = nullptr;
  int64_t begin = 0, end = 0;
};
struct Piece {
  State initial;
  std::vector<Item> sure;   // happened, as they were answered, between begin and end
  std::vector<Item> maybe;  // happened at any time after begin, or never. No gets, nothing refused
};

enum class Answer : uint8_t { yes, no, undecided };
// Takes what it explores off `budget`; undecided when that is 0.
Answer search(const Piece& piece, uint64_t* budget);

// The value that the operation leaves, where that does not depend on what was there. Not for what changes nothing.
inline bool writes(const Operation& o) {
  return o.op == Kind::put || o.op == Kind::del || (o.op == Kind::cas && !o.refused);
}
inline State written(const Operation& o) { return o.op == Kind::del ? State() : State(o.input); }

}  // namespace cantle::linear
