// The plan of a recovery, made of what copies report and of a government, as `zkctl quorum recover` makes it.
//
// The input is a byte of choices, one that says which reports a running server gave (the texts are of data directories
// alone), the text of a government, an empty line, and reports; METADATA's assignments are the government's voters, but
// for the first where a choice says so.
//
// What holds whatever comes: there is no plan, or it has an epoch above everything that anybody promised, its voters
// are METADATA's and can lead, what it was made of still fits it, and it is written and read again the same.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "lib/base/check.h"
#include "lib/coord/layout.h"
#include "lib/coord/recovery_text.h"
#include "lib/proto/quorum_recovery.h"

namespace {

using namespace cantle;

void check_plan(const model::RecoveryPlan& plan, const proto::RecoveryView& view) {
  CHECK(plan.epoch > view.government.epoch && !plan.voters.empty());
  for (const auto& c : view.copies) CHECK(plan.epoch > c.promised && plan.epoch > c.highest);
  CHECK(view.txnseq >= view.government.txnseq);
  for (const auto& v : plan.voters) CHECK(model::find_voter(view.assigned, v.assignment) != nullptr);
  CHECK(plan.stay.size() == plan.voters.size());
  CHECK(proto::still_holds(plan, view));
  CHECK(!proto::in_words(plan).empty());
  const auto government = coord::parse_government(coord::government_text(proto::government_of(plan)));
  CHECK(government && *government == proto::government_of(plan));
  const auto again = coord::parse_recovery_plan(coord::recovery_plan_text(plan));
  CHECK(again && *again == plan);
  (void)proto::recovery_verdict(plan, view.government, view.copies);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const auto end = text.find("\n\n");
  if (end == text.npos) return 0;
  const auto government = coord::parse_government(text.substr(0, end + 1));
  const auto reports = coord::parse_reports(text.substr(end + 2));
  if (!government || !reports || reports->empty() || reports->size() > model::kCopyReportsMax) return 0;
  proto::RecoveryView view;
  view.cluster.bytes.fill(2);
  view.table = "orders";
  view.table_uuid = reports->front().table;
  view.partition = reports->front().partition;
  view.region = reports->front().region;
  view.government = *government;
  view.version = data[0] >> 4;
  view.txnseq = {government->txnseq.value - ((data[0] & 8) != 0 ? 1U : 0U)};
  view.assigned = government->voters;
  if ((data[0] & 1) != 0) view.assigned.erase(view.assigned.begin());
  if ((data[0] & 2) != 0) view.silent.insert(government->voters.back().server);
  view.copies = *reports;
  for (size_t n = 0; n < view.copies.size(); n++)
    if ((data[1] >> n % 8 & 1) != 0) view.copies[n].state = "voter";
  std::vector<model::ServerId> stay;
  if ((data[0] & 4) != 0) stay.push_back(reports->back().server);
  model::AttemptId id;
  id.bytes.fill(5);
  if (const auto plan = proto::plan_recovery(view, stay, id)) check_plan(*plan, view);
  (void)proto::assess(view);
  return 0;
}
