// KeptScans: the states that consistent scans go on in from page to page, each of one partition, by a number that
// stands in the scan's cursor (model/client_messages.h). A state keeps pages of the index from being used again, so
// each is let go of kScanKeptIdle after its last page, kScanKeptMost after its first, and when the index has grown by
// kGrowthMost since: what comes later is SNAPSHOT_TOO_OLD. There are store::kPinsMax at most.
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "lib/base/random.h"
#include "lib/base/result.h"
#include "lib/base/time.h"
#include "lib/model/client_messages.h"
#include "lib/store/engine.h"

namespace cantle::partd {

constexpr uint64_t kGrowthMost = uint64_t{512} << 20;  // of the index's file

class KeptScans {
 public:
  struct Kept {
    store::Engine::Pin pin;
    std::string table;
    model::TxnSeq txnseq;  // of the map that its first page was answered by
    base::Instant since{}, used{};
    uint64_t index_bytes = 0;  // when it was taken
  };

  explicit KeptScans(base::Random& random) : random_(random) {}
  uint64_t keep(Kept kept);
  // snapshot_too_old: it is not kept any more.
  base::Result<Kept*> find(uint64_t number, const std::string& table, base::Instant now);
  void let_go(uint64_t number) { kept_.erase(number); }
  void expire(base::Instant now, uint64_t index_bytes);
  void clear() { kept_.clear(); }
  size_t count() const { return kept_.size(); }
  bool empty() const { return kept_.empty(); }

 private:
  base::Random& random_;
  std::map<uint64_t, Kept> kept_;
};

}  // namespace cantle::partd
