#include "lib/coord/multis.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace cantle::coord {

using base::Code;
using base::Result;

namespace {

// Paths and values, and what goes around them.
size_t bytes_of(const Multis::Change& change) {
  size_t bytes = change.line.size();
  for (const auto& op : change.ops) bytes += op.path.size() + op.value.size() + 64;
  return bytes;
}

// Which change of the piece the refused op belongs to; none: it is not known, or it is the ring.
template <class Piece>
std::optional<size_t> culprit(const Piece& piece, const std::string& detail) {
  size_t op = 0;
  const auto [end, error] = std::from_chars(detail.data(), detail.data() + detail.size(), op);
  if (error != std::errc{} || end != detail.data() + detail.size()) return std::nullopt;
  for (size_t i = 0; i < piece.size(); ++i) {
    if (op < piece[i].ops.size()) return i;
    op -= piece[i].ops.size();
  }
  return std::nullopt;
}

template <class T>
std::vector<T> cut_out(std::vector<T>& from, size_t begin, size_t end) {
  const auto at = [&](size_t i) { return std::make_move_iterator(from.begin() + static_cast<std::ptrdiff_t>(i)); };
  return {at(begin), at(end)};
}

bool nobody_did_anything(Code code) { return code == Code::unavailable || code == Code::outcome_unknown; }

}  // namespace

void Multis::add(Change change) {
  waiting_.push_back(std::move(change));
  if (!out_) send_next();
}

Multis::Piece Multis::gather() {
  Piece piece;
  size_t ops = 0, bytes = 0;
  while (!waiting_.empty()) {
    ops += waiting_.front().ops.size();
    bytes += bytes_of(waiting_.front());
    if (!piece.empty() && (ops > kOpsMost || bytes > kBytesMost)) break;
    piece.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return piece;
}

void Multis::send_next() {
  out_ = !pieces_.empty() || !waiting_.empty();
  if (!out_) return;
  if (pieces_.empty()) return send(std::make_shared<Piece>(gather()));
  auto piece = std::make_shared<Piece>(std::move(pieces_.front()));
  pieces_.pop_front();
  send(std::move(piece));
}

void Multis::send(std::shared_ptr<Piece> piece) {
  std::vector<Op> ops;
  std::string ring;
  for (const auto& change : *piece) {
    ops.insert(ops.end(), change.ops.begin(), change.ops.end());
    ring += change.line;
  }
  if (!ring_.empty()) ops.emplace_back(OpCreate{ring_, std::move(ring), CreateMode::persistent_sequential});
  session_.multi(std::move(ops), [this, alive = alive_, piece](Result<std::vector<OpResult>> r) {
    if (!*alive) return;
    if (r && !ring_.empty() && on_rung) on_rung(r->back().path);
    if (r || nobody_did_anything(r.error().code)) {
      send_next();  // what comes of the answers is gathered meanwhile
      if (r) return made(*piece, *r);
      for (auto& change : *piece) {
        change.done(base::fail(r.error()));
        if (!*alive) return;
      }
      return;
    }
    refused(std::move(*piece), r.error());
  });
}

void Multis::made(Piece& piece, const std::vector<OpResult>& results) {
  size_t at = 0;
  for (auto& change : piece) {
    const auto from = results.begin() + static_cast<std::ptrdiff_t>(at);
    at += change.ops.size();
    const auto alive = alive_;
    change.done(std::vector<OpResult>(from, from + static_cast<std::ptrdiff_t>(change.ops.size())));
    if (!*alive) return;
  }
}

void Multis::refused(Piece piece, const base::Error& error) {
  const bool all_may =
      std::all_of(piece.begin(), piece.end(), [](const Change& c) { return c.look && c.looks < kLooksTogether; });
  if (all_may) return look_all(std::make_shared<Piece>(std::move(piece)));
  const auto named = piece.size() == 1 ? std::optional<size_t>(0) : culprit(piece, error.detail);
  Piece own;
  if (named) {
    const size_t rest = *named + 1, middle = rest + (piece.size() - rest + 1) / 2;
    own = cut_out(piece, *named, rest);
    send_first(piece, {{0, *named}, {rest, middle}, {middle, piece.size()}});
  } else {  // none of them, as far as is known: each half finds out
    send_first(piece, {{0, piece.size() / 2}, {piece.size() / 2, piece.size()}});
  }
  if (own.empty()) return send_next();
  if (own.front().look && own.front().looks < kLooksMost) return look_all(std::make_shared<Piece>(std::move(own)));
  send_next();
  own.front().done(base::fail(error));
}

// These parts of it, in this order, before anything that waits.
void Multis::send_first(Piece& piece, const std::vector<std::pair<size_t, size_t>>& parts) {
  for (auto part = parts.rbegin(); part != parts.rend(); ++part)
    if (part->first < part->second) pieces_.push_front(cut_out(piece, part->first, part->second));
}

void Multis::look_all(std::shared_ptr<Piece> piece) {
  const auto left = std::make_shared<size_t>(piece->size());
  for (size_t i = 0; i < piece->size(); ++i) {
    ++(*piece)[i].looks;
    (*piece)[i].look([this, alive = alive_, piece, left, i](Result<Ops> seen) {
      if (!*alive) return;
      auto& change = (*piece)[i];
      change.ops.clear();
      if (seen && *seen) {
        change.ops = std::move(**seen);
      } else {
        auto done = std::exchange(change.done, nullptr);
        done(seen ? Result<std::vector<OpResult>>(std::vector<OpResult>()) : base::fail(std::move(seen).error()));
        if (!*alive) return;
      }
      if (--*left == 0) looked(piece);
    });
  }
}

void Multis::looked(std::shared_ptr<Piece> piece) {
  std::erase_if(*piece, [](const Change& c) { return c.done == nullptr; });
  if (!piece->empty()) return send(std::move(piece));
  send_next();
}

}  // namespace cantle::coord
