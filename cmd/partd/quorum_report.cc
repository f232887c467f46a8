// quorum.report: how far each copy of one partition of a quorum table goes, for an operator who has lost its majority.
#include "cmd/partd/service.h"
#include "lib/model/recovery.h"
#include "lib/store/log_report.h"
#include "lib/wire/codec.h"

namespace cantle::partd {

using base::Code;

void Service::serve_quorum_report(const rpc::Call& call, rpc::Responder responder) {
  const auto request = wire::decode<model::QuorumReportRequest>(call.params);
  if (!request) return responder.fail(request.error());
  // Until its maps are here it cannot say which of its copies take part.
  bool known = machine_ && tables_known_;
  for (const auto& [name, t] : tables_) known = known && (t.had_map || t.gone);
  if (!known) return responder.fail({Code::unavailable, "starting"});
  model::QuorumReportReply reply;
  reply.server = self_;
  reply.cluster = cluster_;
  std::map<model::AssignmentId, std::string> roles;
  for (const auto& r : quorum_->replicas())
    if (r.replica) roles[r.copy.held.assignment] = r.replica->role;
  for (const auto& t : engine_->tenures()) {
    if (t.id.partition != request->partition || t.mode != store::LogMode::quorum) continue;
    if (reply.copies.size() == model::kCopyReportsMax) break;
    model::CopyReport c;
    c.server = self_;
    c.incarnation = dir_->identity().incarnation;
    c.table = t.table;
    c.partition = t.id.partition;
    c.region = t.region;
    c.assignment = t.id.assignment;
    c.whole = t.whole;
    const auto role = roles.find(t.id.assignment);
    c.state = t.state != store::TenureState::live ? "aside" : role == roles.end() ? "idle" : role->second;
    if (const auto log = t.state == store::TenureState::live ? engine_->quorum_log(t.id.partition) : std::nullopt) {
      store::report_log(*log, c);
    } else {
      c.end = t.applied;
      c.commit = t.applied.lsn;
    }
    reply.copies.push_back(std::move(c));
  }
  responder.ok(wire::encode(reply));
}

}  // namespace cantle::partd
