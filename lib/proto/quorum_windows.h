// Windows: what the store remembers of the clients that are writing just now (lib/model/series.h), kept by the judge
// that leads, so that not each write asks the store, which puts a client's window together from what it has of it.
//
// Use
//   if (auto* window = windows.find(client)) …          // as the store has it
//   else { ask the store; windows.keep(client, answer); }
//   windows.add(client, entry);                         // of a record that the store shows from now on
//   windows.clear();                                    // the leadership is over: others may write
//
// Invariants
//   * It holds only what is committed: nothing is ever cut from it.
//   * A window that is kept has every entry that the store's has, and none but those and what expired a moment ago.
//   * At most kWindowsMax; who has not written for longest, about, makes room.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>

#include "lib/model/series.h"

namespace cantle::proto::quorum {

constexpr size_t kWindowsMax = 256;  // of a partition; each has kSeriesWindow entries at most: 0.8 MiB in all

class Windows {
 public:
  model::SeriesWindow* find(uint64_t client);
  model::SeriesWindow* keep(uint64_t client, model::SeriesWindow window);
  void add(uint64_t client, const model::SeriesEntry& entry);
  void forget(uint64_t client);
  void clear();
  size_t size() const { return kept_.size(); }

 private:
  struct Kept {
    model::SeriesWindow window;
    bool used = true;  // since the hand was last there
  };
  void make_room();

  std::unordered_map<uint64_t, Kept> kept_;
  std::deque<uint64_t> round_;  // those, as on a clock; its hand is at the front
};

}  // namespace cantle::proto::quorum
