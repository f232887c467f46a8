// StateFile: what a partd must remember beside the store: the file `partd` in the data directory, plain lines.
//
//   instance: <32 hex digits>                     which directory this is, drawn at the first start
//   seen: <table uuid> <txnseq>                   a map of this table was acted on (S36)
//   quorum-seen: <table uuid> <txnseq>            likewise of a quorum table: every copy that it asked for was durable
//   child: <partition> <parent> <attempt>         begun as the child of a split (push_types.h, ChildOf)
//
// Written whole, aside, synced and renamed. Threads: one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/result.h"
#include "lib/proto/push_types.h"
#include "lib/store/disk.h"

namespace cantle::partd {

struct StateFile {
  std::string instance;
  std::map<model::TableUuid, model::TxnSeq> seen;
  std::map<model::TableUuid, model::TxnSeq> quorum_seen;
  std::vector<proto::push::ChildOf> children;

  // Made anew, durably, where there is none. identity: it cannot be read.
  static base::Result<StateFile> load(store::Disk& disk, base::Random& random);
  base::Status save(store::Disk& disk) const;
};

}  // namespace cantle::partd
