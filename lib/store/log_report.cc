#include "lib/store/log_report.h"

#include <algorithm>

#include "lib/model/recovery.h"
#include "lib/store/engine.h"

namespace cantle::store {

void report_log(const QuorumLog& log, model::CopyReport& copy) {
  copy.end = log.durable;
  copy.commit = std::min(log.commit, log.durable.lsn);
  copy.promised = log.promised;
  copy.highest = log.highest;
  copy.epochs = log.epochs;
  std::erase_if(copy.epochs, [&](const model::EpochStart& e) { return e.first > copy.end.lsn; });
  copy.whole = log.whole;
}

}  // namespace cantle::store
