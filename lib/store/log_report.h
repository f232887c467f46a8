// What a copy with a log says of it, to whoever collects the copies of a partition whose majority is gone
// (lib/proto/quorum_recovery.h).
#pragma once

namespace cantle::model {
struct CopyReport;
}

namespace cantle::store {

struct QuorumLog;

// How far the log is durable and committed, its epochs up to there, its promises, and whether all of it is there. What
// the copy is (server, partition, assignment, state) is the caller's to say.
void report_log(const QuorumLog& log, model::CopyReport& copy);

}  // namespace cantle::store
