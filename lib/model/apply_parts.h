// What the files that implement apply() share; not for others.
#pragma once

#include <string>

#include "lib/model/operation.h"

namespace cantle::model::detail {

// The file under construction. Its txnseq is that of the new file already.
struct Draft {
  Metadata file;

  // The partition, or conflict.
  base::Result<Partition> partition(const PartitionId& id) const;
  // Puts it back, as changed by this transaction.
  void changed(Partition partition);
  // Takes it out, and remembers this of it.
  void ended(EndedPartition ended);
};

inline auto conflict(std::string_view rule, std::string text) {
  base::Error error(base::Code::conflict, std::move(text));
  error.detail = rule;
  return base::fail(std::move(error));
}
inline auto refused(std::string_view rule, std::string text) {
  base::Error error(base::Code::invalid, std::move(text));
  error.detail = rule;
  return base::fail(std::move(error));
}

// What is left of it, less what became of it.
EndedPartition make_ended(const Draft& draft, const Partition& partition, const AttemptId& attempt);

// The copy of the base that the operations then change.
base::Result<Draft> begin(const Metadata* before, std::span<const Operation> operations, const ApplyContext& context);

base::Status apply(Draft& draft, const ops::CreateTable& op);
base::Status apply(Draft& draft, const ops::DropTable& op);
base::Status apply(Draft& draft, const ops::SetOption& op);

base::Status apply(Draft& draft, const ops::SplitPartition& op);
base::Status apply(Draft& draft, const ops::FinalizeSplit& op);
base::Status apply(Draft& draft, const ops::AbortSplit& op);
base::Status apply(Draft& draft, const ops::SweepEnded& op);

base::Status apply(Draft& draft, const ops::MergePartitions& op);
base::Status apply(Draft& draft, const ops::FinalizeMerge& op);
base::Status apply(Draft& draft, const ops::AbortMerge& op);

base::Status apply(Draft& draft, const ops::Initialize& op);
base::Status apply(Draft& draft, const ops::Replace& op);
base::Status apply(Draft& draft, const ops::MarkAvailable& op);
base::Status apply(Draft& draft, const ops::FinalizeMove& op);
base::Status apply(Draft& draft, const ops::CancelMove& op);
base::Status apply(Draft& draft, const ops::RemoveDead& op);

}  // namespace cantle::model::detail
