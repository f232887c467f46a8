// SplitPlan: a split that was thought out and not yet begun, as text: what `splitter plan` writes and `splitter apply`
// reads. All ids are drawn, so that applying it twice is the same split.
//
//   cantle-split-plan: 1
//   table: packages
//   table_uuid: 4f0c…
//   base_txnid: 99ab…            applied only on exactly this map
//   base_txnseq: 12
//   partition: 0a1b…
//   attempt: 77e0…
//   point: libm                  %XX for other bytes
//   low: 5d5d… p1=81c0… p2=…     the child's id; its servers in slot order, each with its assignment
//   high: …
#pragma once

#include <string>
#include <string_view>

#include "lib/base/result.h"
#include "lib/model/operation.h"

namespace cantle::client {

constexpr size_t kSplitPlanMax = 16384;  // bytes of text

struct SplitPlan {
  std::string table;
  model::TableUuid table_uuid;
  model::TxnId base;
  model::TxnSeq base_txnseq;
  model::ops::SplitPartition split;
  friend bool operator==(const SplitPlan&, const SplitPlan&) = default;
};

std::string format_plan(const SplitPlan& plan);
// invalid: not a plan, a line that is missing, an id or a name that is none; the text says which.
base::Result<SplitPlan> parse_plan(std::string_view text);

}  // namespace cantle::client
