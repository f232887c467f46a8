#include "lib/proto/quorum_recovery.h"

#include <algorithm>

#include "lib/base/testing.h"
#include "lib/proto/quorum_log.h"

namespace cantle::proto {

using base::Code;
using base::fail;
using model::CopyReport;
using model::Epoch;
using model::Loss;
using model::LossKind;
using model::Lsn;
using model::RecoveryPlan;
using model::ServerId;

namespace {

bool is_offline(const CopyReport& c) { return c.state == "offline"; }
bool is_aside(const CopyReport& c) { return c.state == "aside"; }

// Of the voters, the one whose copy it is: that assignment, on that server.
const model::Voter* voter_of(const model::Voters& voters, const CopyReport& c) {
  const auto* voter = model::find_voter(voters, c.assignment);
  return voter != nullptr && voter->server == c.server && !is_aside(c) ? voter : nullptr;
}

const CopyReport& best_of(const std::vector<CopyReport>& copies) {
  return *std::max_element(copies.begin(), copies.end(), [](const CopyReport& a, const CopyReport& b) {
    return model::token_of(a.end) < model::token_of(b.end);
  });
}

std::string names(const std::vector<ServerId>& servers) {
  std::string text;
  for (const auto& s : servers) text += (text.empty() ? "" : ", ") + s.name;
  return text;
}

base::Status check_copy(const RecoveryState& state, const ServerId& server, const CopyState** out) {
  const CopyState* any = nullptr;
  for (const auto& c : state.copies) {
    if (c.report.server != server) continue;
    if (c.able && c.assigned) return *out = &c, base::ok();
    if (any == nullptr || c.assigned) any = &c;
  }
  if (any == nullptr) return fail(Code::not_found, server.name + " was not heard of: nothing is known of a log there");
  const auto& r = any->report;
  if (!any->assigned)
    return fail(Code::invalid, "the copy of " + server.name + " is of a tenure that METADATA does not name any more");
  if (is_offline(r))
    return fail(Code::unavailable, server.name + " does not run: start partd on that data directory first");
  if (!r.whole) return fail(Code::invalid, "the log of " + server.name + " is damaged: it cannot lead");
  return fail(Code::invalid, "the copy of " + server.name + " takes no part (" + r.state + ")");
}

}  // namespace

Lsn last_common(const CopyReport& a, const CopyReport& b) {
  return quorum::last_common(a.end, a.epochs, b.end, b.epochs);
}

// A transaction that changed other partitions is none of its voters': a leader goes by the map that last changed this
// one, and would leave the voters alone for as long as the government is of a later one (QuorumReplica::reform_if_due).
RecoveryView view_of(const model::Metadata& map, const model::Partition& partition) {
  RecoveryView view;
  view.table = map.name;
  view.table_uuid = map.table;
  view.partition = partition.id;
  view.region = partition.region;
  view.txnseq = MUTANT("recovered_by_a_later_map") ? map.txnseq : partition.min_txnseq;
  for (const auto& a : partition.assignments) view.assigned.push_back({a.slot, a.server, a.id});
  return view;
}

RecoveryState assess(const RecoveryView& view) {
  RecoveryState state;
  for (const auto& report : view.copies) {
    CopyState c;
    c.report = report;
    c.voter = voter_of(view.government.voters, report) != nullptr;
    c.assigned = voter_of(view.assigned, report) != nullptr;
    c.online = !is_offline(report);
    c.able = c.online && report.whole && !is_aside(report) && report.state != "faulted" && report.state != "idle";
    state.copies.push_back(std::move(c));
  }
  std::sort(state.copies.begin(), state.copies.end(), [](const CopyState& a, const CopyState& b) {
    return std::tie(a.report.server, a.report.assignment) < std::tie(b.report.server, b.report.assignment);
  });
  const CopyState* best = nullptr;
  for (const auto& c : state.copies)
    if ((c.voter || c.assigned) &&
        (best == nullptr || model::token_of(c.report.end) > model::token_of(best->report.end)))
      best = &c;
  for (auto& c : state.copies)
    c.best = best != nullptr && (c.voter || c.assigned) &&
             model::token_of(c.report.end) == model::token_of(best->report.end);
  std::set<ServerId> missing;
  for (const auto* list : {&view.government.voters, &view.assigned})
    for (const auto& v : *list)
      if (std::none_of(view.copies.begin(), view.copies.end(),
                       [&](const CopyReport& c) { return voter_of({v}, c) != nullptr; }))
        missing.insert(v.server);
  state.missing.assign(missing.begin(), missing.end());
  state.needed = model::majority(view.government.voters.size());
  state.able = static_cast<size_t>(
      std::count_if(state.copies.begin(), state.copies.end(), [](const CopyState& c) { return c.voter && c.able; }));
  return state;
}

Loss loss_of(const RecoveryView& view, const std::vector<CopyReport>& stay) {
  const auto& best = best_of(stay);
  Loss loss;
  loss.end = best.end;
  Lsn committed = best.end.lsn;
  bool longest = true;
  std::set<model::AssignmentId> known;
  for (const auto& c : view.copies) {
    if (is_aside(c)) continue;
    if (c.whole && voter_of(view.government.voters, c) != nullptr) known.insert(c.assignment);
    // What stays together is one log in the end: the best one's.
    const auto common = last_common(best, c);
    longest = longest && model::token_of(c.end) <= model::token_of(best.end);
    committed = std::max(committed, c.commit);
    if (c.end.lsn > common) {
      if (c.commit > common) loss.committed = std::max(loss.committed, c.commit.value - common.value);
      const auto from = std::max(common, c.commit);
      if (c.end.lsn > from && model::token_of(c.end) > model::token_of(best.end))
        loss.unknown_fate = std::max(loss.unknown_fate, c.end.lsn.value - from.value);
    }
  }
  if (committed > best.end.lsn) loss.committed = std::max(loss.committed, committed.value - best.end.lsn.value);
  // A write that was acknowledged is on a majority; one voter of each is among those that were seen, and of their logs
  // the best has all that any of them was ever counted for.
  const auto& voters = view.government.voters;
  const bool seen_enough = known.size() + model::majority(voters.size()) > voters.size();
  loss.kind = loss.committed > 0 ? LossKind::certain : seen_enough && longest ? LossKind::none : LossKind::possible;
  return loss;
}

base::Result<RecoveryPlan> plan_recovery(const RecoveryView& view, const std::vector<ServerId>& stay,
                                         const model::AttemptId& id) {
  const auto state = assess(view);
  if (state.majority())
    return fail(Code::conflict, std::to_string(state.able) + " of " + std::to_string(view.government.voters.size()) +
                                    " voters are there, which is a majority: they elect a leader by themselves");
  if (view.txnseq < view.government.txnseq)
    return fail(Code::conflict, "the map that was read, of txnseq " + to_string(view.txnseq) +
                                    ", is older than the one that the government's voters are of, " +
                                    to_string(view.government.txnseq) + ": read it again");
  // Whoever does not answer may lead, and acknowledge what nobody here would ever hear of.
  std::vector<ServerId> silent;
  for (const auto* list : {&view.government.voters, &view.assigned})
    for (const auto& v : *list)
      if (view.silent.contains(v.server) && std::find(silent.begin(), silent.end(), v.server) == silent.end())
        silent.push_back(v.server);
  if (!silent.empty())
    return fail(Code::conflict, names(silent) +
                                    " is registered in the coordination service and does not answer: it may lead. Stop "
                                    "it, or wait until it answers or its session has ended");
  RecoveryPlan plan;
  std::vector<CopyReport> with_epochs;
  std::set<ServerId> named(stay.begin(), stay.end());
  if (stay.empty())
    for (const auto& c : state.copies)
      if (c.able && c.assigned) named.insert(c.report.server);
  if (named.empty())
    return fail(Code::not_found,
                "no replica that can lead is left: nothing answers that METADATA names, with a whole "
                "log");
  for (const auto& server : named) {
    const CopyState* copy = nullptr;
    TRY(check_copy(state, server, &copy));
    with_epochs.push_back(copy->report);
    plan.voters.push_back(*model::find_voter(view.assigned, copy->report.assignment));
  }
  std::sort(plan.voters.begin(), plan.voters.end(),
            [](const model::Voter& a, const model::Voter& b) { return a.slot < b.slot; });
  for (const auto& v : plan.voters)
    for (const auto& c : with_epochs)
      if (c.assignment == v.assignment)
        plan.stay.push_back({v.server,
                             {},
                             view.table_uuid,
                             view.partition,
                             view.region,
                             v.assignment,
                             "",
                             c.end,
                             c.commit,
                             c.promised,
                             {},
                             {},
                             true});
  plan.id = id;
  plan.cluster = view.cluster;
  plan.table = view.table;
  plan.table_uuid = view.table_uuid;
  plan.partition = view.partition;
  plan.region = view.region;
  plan.txnseq = view.txnseq;
  plan.version = view.version;
  plan.replaces = view.government.epoch;
  plan.gone = state.missing;
  // Whoever sealed promised one more than a government that was read, at most this one.
  plan.epoch = view.government.epoch.next();
  for (const auto& c : view.copies) plan.epoch = std::max({plan.epoch, c.promised, c.highest});
  if (plan.epoch.next() < plan.epoch) return fail(Code::invalid, "a copy has promised the last epoch that there is");
  plan.epoch = plan.epoch.next();
  plan.loss = loss_of(view, with_epochs);
  return plan;
}

base::Status still_holds(const RecoveryPlan& plan, const RecoveryView& view) {
  const auto changed = [](const std::string& what) {
    return fail(Code::conflict, what + ": make a new plan (nothing was changed)");
  };
  if (view.cluster != plan.cluster) return fail(Code::conflict, "the plan is of another cluster");
  if (view.table_uuid != plan.table_uuid || view.partition != plan.partition || view.region != plan.region)
    return fail(Code::conflict, "the plan is of another partition, or of a table that was dropped");
  if (view.version != plan.version || view.government.epoch != plan.replaces)
    return changed("the government has changed since the plan was made, to epoch " + to_string(view.government.epoch));
  std::vector<ServerId> stay;
  for (const auto& s : plan.stay) stay.push_back(s.server);
  auto now = plan_recovery(view, stay, plan.id);
  if (!now) return fail(std::move(now).error());
  if (now->voters != plan.voters) return changed("METADATA has other assignments than when the plan was made");
  for (const auto& was : plan.stay)
    for (const auto& is : now->stay) {
      if (is.server != was.server) continue;
      if (is.end != was.end)
        return changed("the log of " + is.server.name + " ends at " + to_string(is.end.epoch) + "-" +
                       to_string(is.end.lsn) + ", not at " + to_string(was.end.epoch) + "-" + to_string(was.end.lsn) +
                       " as when the plan was made");
    }
  // An older map must not be taken for a newer one's.
  if (view.txnseq < plan.txnseq) return changed("an older map is shown than when the plan was made");
  if (now->epoch > plan.epoch) return changed("a replica has promised more since");
  // More may have been seen then (a data directory), never less known now of what stays.
  if (now->loss.committed > plan.loss.committed) return changed("more would be lost than the plan says");
  return base::ok();
}

model::Government government_of(const RecoveryPlan& plan) {
  model::Government to;
  to.epoch = plan.epoch;
  to.voters = plan.voters;
  to.writer = "recover/" + to_string(plan.id);
  to.txnseq = plan.txnseq;
  return to;
}

RecoveryVerdict recovery_verdict(const RecoveryPlan& plan, const model::Government& government,
                                 const std::vector<CopyReport>& reports) {
  if (government.epoch < plan.epoch) return RecoveryVerdict::elsewhere;
  const auto* leader = model::find_voter(government.voters, government.leader);
  if (government.epoch == plan.epoch || government.leader.none() || leader == nullptr) return RecoveryVerdict::waiting;
  for (const auto& r : reports) {
    if (r.assignment != government.leader || r.state != "leader") continue;
    // It begins behind what the plan kept: with an epoch of the new lineage.
    const auto first = std::find_if(r.epochs.begin(), r.epochs.end(),
                                    [&](const model::EpochStart& e) { return e.epoch > plan.epoch; });
    if (first == r.epochs.end() || r.commit < first->first) return RecoveryVerdict::waiting;
    return first->first > plan.loss.end.lsn ? RecoveryVerdict::serving : RecoveryVerdict::elsewhere;
  }
  return RecoveryVerdict::waiting;
}

std::vector<std::string> in_words(const RecoveryPlan& plan) {
  std::vector<std::string> out;
  const auto& l = plan.loss;
  std::vector<ServerId> stay;
  for (const auto& v : plan.voters) stay.push_back(v.server);
  out.push_back("Partition " + to_string(plan.partition) + " of table " + plan.table + ": " + names(stay) +
                (stay.size() == 1 ? " alone votes" : " vote") + " from epoch " + to_string(plan.epoch) +
                " on, with the log up to LSN " + to_string(l.end.lsn) + " of epoch " + to_string(l.end.epoch) + ".");
  if (!plan.gone.empty()) out.push_back("Gone for good: " + names(plan.gone) + ".");
  switch (l.kind) {
    case LossKind::none:
      out.emplace_back(
          "Nothing that was acknowledged is lost: the copies that were seen share one with every majority.");
      break;
    case LossKind::possible:
      out.push_back("What the others acknowledged behind LSN " + to_string(l.end.lsn) +
                    " is LOST; nobody can say how much that is, or whether it is anything.");
      break;
    case LossKind::certain:
      out.push_back(std::to_string(l.committed) +
                    " records that are known to have been acknowledged are LOST; what "
                    "came behind them, too.");
      break;
  }
  if (plan.replaces > l.end.epoch)
    out.push_back("The government had reached epoch " + to_string(plan.replaces) +
                  ", this log has nothing behind epoch " + to_string(l.end.epoch) +
                  ": whatever was written under later leaders is LOST.");
  if (l.unknown_fate > 0)
    out.push_back("A copy that does not stay has " + std::to_string(l.unknown_fate) +
                  " more records, of which it is not known whether they were acknowledged.");
  return out;
}

}  // namespace cantle::proto
