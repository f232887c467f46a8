// Multis: small changes of many regions, gathered into few multis (design/coordination.md, "Requests are kept under
// …").
//
// Use
//   Multis votes(session, layout.ring_prefix(d));   // nothing: nobody is told
//   votes.add({ops, ring_line(region, vote), look, done});
// The ops of one change happen together or not at all, in one multi with the changes of other regions that came while
// the multi before it was under way, and the ring (ring.h) of the lines of all of them.
//
// A multi that is refused names one op. Changes that can look anew all do, a few times; else the one that is named is
// answered with the refusal, or looks anew by itself, what stands before it is sent again together, and what stands
// behind it in two halves: so a conflict in one region costs that region, and the others a few more multis.
//
// Invariants
//   * Each change is answered exactly once, and never failed by what became of another region's.
//   * One multi is under way at a time. It has at most kOpsMost ops and kBytesMost bytes, or is a single change.
//   * A multi whose reply was lost leaves every change of it outcome_unknown (S27): nothing is sent again.
//
// Ownership: the session outlives it; callbacks are not made after its end. Threads: the session's loop.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/coord/coord.h"

namespace cantle::coord {

class Multis {
 public:
  static constexpr size_t kOpsMost = 512;
  static constexpr size_t kBytesMost = 400000;
  // Of one change: first with those that were refused with it, as others may be at the same regions just now, then
  // alone.
  static constexpr int kLooksTogether = 3, kLooksMost = 6;

  // What is to be done as things stand now. Nothing: it is done. An error ends the change.
  using Ops = std::optional<std::vector<Op>>;
  using Look = std::function<void(Done<Ops>)>;
  struct Change {
    std::vector<Op> ops;
    std::string line;                  // of the ring
    Look look;                         // null: a refusal is the answer
    Done<std::vector<OpResult>> done;  // of its own ops; none if a look found it done
    int looks = 0;
  };

  Multis(Session& session, std::string ring) : session_(session), ring_(std::move(ring)) {}
  ~Multis() { *alive_ = false; }
  Multis(const Multis&) = delete;
  Multis& operator=(const Multis&) = delete;

  void add(Change change);
  // The ring of a multi that was made just now is this one: its own maker need not look.
  std::function<void(const std::string& path)> on_rung;

 private:
  using Piece = std::vector<Change>;
  void send_next();
  Piece gather();
  void send(std::shared_ptr<Piece> piece);
  void made(Piece& piece, const std::vector<OpResult>& results);
  void refused(Piece piece, const base::Error& error);
  void send_first(Piece& piece, const std::vector<std::pair<size_t, size_t>>& parts);
  void look_all(std::shared_ptr<Piece> piece);
  void looked(std::shared_ptr<Piece> piece);

  Session& session_;
  std::string ring_;
  std::deque<Change> waiting_;
  std::deque<Piece> pieces_;  // of a multi that was refused: sent first, as they are
  bool out_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cantle::coord
