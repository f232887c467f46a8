// QuorumGet and QuorumScan: reads at more than one replica of a push table, from the pages that come in.
//
// Use
//   QuorumGet read(plan.needed);
//   read.answered(slot, reply);  read.refused();          // as they come
//   if (read.done()) reply(read.result());
//
// Invariants
//   * A result is there once `needed` different slots answered, and is the newest of what they said; two
//     answers of one slot (a replica being moved) count once.
//   * A merged page holds no key past the point up to which every page that was counted is complete.
// Threads: none; pure.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "lib/base/result.h"
#include "lib/model/client_messages.h"
#include "lib/model/messages.h"

namespace cantle::proto {

class QuorumGet {
 public:
  explicit QuorumGet(uint32_t needed) : needed_(needed) {}
  void answered(uint32_t slot, const model::PushReadReply& reply);
  bool done() const { return slots_.size() >= needed_; }
  // not_found for a key that is not there, or deleted.
  base::Result<model::GetReply> result() const;

 private:
  uint32_t needed_;
  std::set<uint32_t> slots_;
  model::PushReadReply newest_;
};

class QuorumScan {
 public:
  QuorumScan(uint32_t needed, bool reverse, uint32_t limit, uint32_t bytes)
      : needed_(needed), reverse_(reverse), limit_(limit), bytes_(bytes) {}
  void answered(uint32_t slot, model::PushScanReply page);
  bool done() const { return slots_.size() >= needed_; }
  struct Page {
    std::vector<model::ScanRecord> records;
    bool more = false;
    std::string resume;  // as PushScanReply
  };
  Page result() const;

 private:
  uint32_t needed_;
  bool reverse_;
  uint32_t limit_, bytes_;
  std::set<uint32_t> slots_;
  std::vector<model::PushScanReply> pages_;
};

}  // namespace cantle::proto
