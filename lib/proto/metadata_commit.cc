#include "lib/proto/metadata_commit.h"

#include <algorithm>

#include "lib/base/check.h"
#include "lib/base/testing.h"

namespace cantle::proto {

using namespace commit;

commit::Effects MetadataCommit::step(const Input& input) {
  Effects out;
  if (phase_ == Phase::ended) return out;
  std::visit([&](const auto& in) { on(in, out); }, input);
  return out;
}

std::string_view MetadataCommit::doing() const {
  switch (phase_) {
    case Phase::idle: return "waiting for its turn";
    case Phase::reading: return "reading TableConfig";
    case Phase::loading: return "fetching the current file";
    case Phase::building: return "applying the operations";
    case Phase::storing: return "waiting for a majority of metadata servers to store the file";
    case Phase::swapping: return "swapping TableConfig";
    case Phase::looking:
    case Phase::searching: return "finding out what became of a swap";
    case Phase::fencing: return "fencing a swap whose answer was lost";
    case Phase::ended: return "done";
  }
  return "";
}

// An attempt planned in one phase is none of the next.
void MetadataCommit::enter(Phase phase) {
  phase_ = phase;
  backoff_.cancel();
}

void MetadataCommit::on(const Proposed& in, Effects& out) {
  if (phase_ != Phase::idle) return;
  if (in.now >= request_.deadline) return give_up(in.now, out);
  enter(Phase::reading);
  out.emplace_back(Read{.fresh = false});
}

void MetadataCommit::start_over(Effects& out) {
  enter(Phase::reading);
  out.emplace_back(Read{.fresh = true});
}

void MetadataCommit::look(Effects& out) {
  enter(Phase::looking);
  out.emplace_back(Read{.fresh = true});
}

void MetadataCommit::on(const Tick& in, Effects& out) {
  if (in.now >= request_.deadline) {
    overdue(in.now, out);
    if (phase_ == Phase::ended) return;
  }
  if (!backoff_.take(in.now)) return;
  if (phase_ == Phase::reading)
    out.emplace_back(Read{.fresh = true});
  else if (phase_ == Phase::looking)
    out.emplace_back(Read{.fresh = true});
  else if (phase_ == Phase::storing)
    store_where_missing(out);
}

// The requester has waited long enough. What is certain not to have happened is said so; a swap that may have happened
// is looked into a little longer, and then fenced, so that the answer can be certain.
void MetadataCommit::overdue(base::Instant now, Effects& out) {
  out_of_time_ = true;
  const bool late = now >= request_.deadline + kMdResolve;
  switch (phase_) {
    case Phase::swapping:
    case Phase::fencing:
    case Phase::looking:
    case Phase::searching:
      if (!late) return;
      return reply(
          base::fail(base::Code::outcome_unknown, "the answer to the swap of TableConfig did not come in time"), out);
    default:
      if (ambiguous_) return look(out);
      return give_up(now, out);
  }
}

// Nothing is under way, so nothing has happened.
void MetadataCommit::give_up(base::Instant, Effects& out) {
  const auto text = "out of time while " + std::string(doing());
  discard(out);
  reply(base::fail(base::Code::unavailable, text), out);
}

void MetadataCommit::on(const ConfigRead& in, Effects& out) {
  if (phase_ != Phase::reading && phase_ != Phase::looking) return;
  if (!in.answer) {
    if (in.answer.error().code == base::Code::regressed && !ambiguous_) {
      discard(out);
      return reply(base::fail(in.answer.error()), out);
    }
    return backoff_.failed(in.now);
  }
  backoff_.reset();
  if (phase_ == Phase::reading)
    begin_on(in.now, *in.answer, out);
  else
    look_at(in.now, *in.answer, out);
}

void MetadataCommit::begin_on(base::Instant, const std::optional<VersionedConfig>& read, Effects& out) {
  if (read) {
    config_ = *read;
    enter(Phase::loading);
    out.emplace_back(Load{config_.config.metadata_txnid});
    return;
  }
  if (!request_.creates) return reply(base::fail(base::Code::no_such_table, "there is no such table"), out);
  config_ = {};
  config_.version = kCreateVersion;
  config_.config.metadata_servers = request_.metadata_servers;
  base_ = nullptr;
  build(out);
}

void MetadataCommit::on(const Loaded& in, Effects& out) {
  if (phase_ != Phase::loading && phase_ != Phase::searching) return;
  if (!in.map) {
    // Whoever is current has it; read again, it may be another by now.
    enter(phase_ == Phase::loading ? Phase::reading : Phase::looking);
    return backoff_.failed(in.now);
  }
  if (phase_ == Phase::loading) return base_loaded(*in.map, out);
  // The version has passed, so no swap of ours can happen any more: either it is in the chain, or it never will be.
  if (in_chain(**in.map)) return succeed({}, (*in.map)->txnseq, true, out);
  ambiguous_ = false;
  rebase_or_conflict(in.now, out);
}

bool MetadataCommit::in_chain(const model::Metadata& map) const {
  if (MUTANT("skip_own_change_check")) return false;
  return std::find(map.changes.begin(), map.changes.end(), request_.change) != map.changes.end();
}

void MetadataCommit::base_loaded(const MapPtr& map, Effects& out) {
  base_ = map;
  // First of all: it may be there already, and applied again it would be refused or, worse, accepted (S28).
  if (in_chain(*map)) return succeed({}, map->txnseq, true, out);
  if (request_.since.value != 0 && map->txnseq.value > request_.since.value + model::kChangeIdsMax)
    return reply(base::fail(base::Code::outcome_unknown, "more than 256 transactions ago: nobody remembers"), out);
  if (!request_.base.none() && request_.base != map->txnid) {
    base::Error error(base::Code::conflict,
                      "the table is at txnseq " + to_string(map->txnseq) + ", not at the base that was named");
    error.txnseq = map->txnseq.value;
    error.detail = to_string(map->txnid);
    return reply(base::fail(std::move(error)), out);
  }
  build(out);
}

void MetadataCommit::build(Effects& out) {
  enter(Phase::building);
  txnid_ = model::TxnId::draw(*random_);
  built_.reset();
  stored_.clear();
  asked_.clear();
  out.emplace_back(Build{txnid_, base_});
}

void MetadataCommit::on(const Built& in, Effects& out) {
  if (phase_ != Phase::building) return;
  if (!in.file) return reply(base::fail(in.file.error()), out);
  built_ = *in.file;
  enter(Phase::storing);
  store_where_missing(out);
}

void MetadataCommit::store_where_missing(Effects& out) {
  for (const auto& server : config_.config.metadata_servers)
    if (!stored_.contains(server) && asked_.insert(server).second) out.emplace_back(Store{server, txnid_});
}

void MetadataCommit::on(const Stored& in, Effects& out) {
  if (in.txnid != txnid_ || !built_) return;
  asked_.erase(in.by);
  if (in.status) {
    stored_.insert(in.by);
    if (phase_ == Phase::storing) swap_if_majority(out);
    return;
  }
  if (phase_ != Phase::storing) return;
  if (ambiguous_) return look(out);
  if (in.status.error().code == base::Code::diverged) {
    out.emplace_back(Alarm{in.by.name + ": " + in.status.error().text});
    discard(out);
    return reply(base::fail(in.status.error()), out);
  }
  // Behind us: somebody else's transaction is current already. The next read will show it.
  if (in.status.error().code == base::Code::conflict) {
    discard(out);
    return start_over(out);
  }
  if (!backoff_.planned()) backoff_.failed(in.now);
}

void MetadataCommit::swap_if_majority(Effects& out) {
  size_t have = 0;
  for (const auto& server : config_.config.metadata_servers) have += stored_.contains(server) ? 1 : 0;
  const size_t wanted = MUTANT("swap_without_majority") ? 1 : model::majority(config_.config);
  if (have < wanted) return;
  backoff_.reset();
  enter(Phase::swapping);
  Swap swap{config_.version, config_.config};
  model::set_current(swap.to, *built_->map, built_->hash);
  out.emplace_back(std::move(swap));
}

void MetadataCommit::on(const Swapped& in, Effects& out) {
  if (phase_ != Phase::swapping) return;
  switch (in.result) {
    case SwapResult::done: return succeed(txnid_, built_->map->txnseq, false, out);
    case SwapResult::unknown:
      if (MUTANT("connection_loss_is_failure")) return give_up(in.now, out);
      ambiguous_ = true;
      return look(out);
    case SwapResult::conflict:
      // Refused at this version. An earlier try at it, whose answer was lost, may be what moved it.
      return look(out);
    case SwapResult::refused:
      // TableConfig stands where it stood, so no earlier try was made; one that comes late is refused for the same.
      discard(out);
      return reply(base::fail(base::Code::conflict, "a government that the change rests on has changed"), out);
    case SwapResult::unsent: enter(Phase::looking); return backoff_.failed(in.now);
  }
}

void MetadataCommit::look_at(base::Instant now, const std::optional<VersionedConfig>& read, Effects& out) {
  if (!read) {
    if (config_.version != kCreateVersion) {
      // The table is gone, with all its chain.
      return reply(base::fail(base::Code::no_such_table, "the table was removed meanwhile"), out);
    }
    if (out_of_time_) {
      if (!ambiguous_) return give_up(now, out);
      return backoff_.failed(now);  // A creation cannot be fenced; overdue() ends it
    }
    enter(Phase::storing);
    return swap_if_majority(out);
  }
  const auto& now_there = read->config;
  if (now_there.metadata_txnid == txnid_) return succeed(txnid_, now_there.metadata_txnseq, false, out);
  const bool base_stands = base_ != nullptr && now_there.metadata_txnid == base_->txnid;
  if (!base_stands) {
    config_ = *read;
    enter(Phase::searching);
    out.emplace_back(Load{now_there.metadata_txnid});
    return;
  }
  if (read->version != config_.version) ambiguous_ = false;  // what was under way at the old version fails
  config_ = *read;
  if (out_of_time_) {
    if (!ambiguous_) return give_up(now, out);
    enter(Phase::fencing);
    out.emplace_back(Fence{config_.version, config_.config});
    return;
  }
  // Only the version moved (a fence, a server that joined or left), or our swap is still under way and a second one
  // at the same version does no harm: one of the two is refused.
  enter(Phase::storing);
  store_where_missing(out);
  swap_if_majority(out);
}

void MetadataCommit::on(const Fenced& in, Effects& out) {
  if (phase_ != Phase::fencing) return;
  if (in.result == SwapResult::done) {
    ambiguous_ = false;
    return give_up(in.now, out);
  }
  enter(Phase::looking);
  if (in.result == SwapResult::conflict)
    out.emplace_back(Read{.fresh = true});
  else
    backoff_.failed(in.now);
}

void MetadataCommit::rebase_or_conflict(base::Instant now, Effects& out) {
  discard(out);
  if (out_of_time_) return reply(base::fail(base::Code::unavailable, "out of time: others were first"), out);
  if (request_.base.none() && now < request_.deadline) return start_over(out);
  base::Error error(base::Code::conflict, "somebody else was first");
  error.txnseq = config_.config.metadata_txnseq.value;
  error.detail = to_string(config_.config.metadata_txnid);
  reply(base::fail(std::move(error)), out);
}

void MetadataCommit::discard(Effects& out) {
  CHECK(!ambiguous_);  // S27: it may become current yet
  if (built_) out.emplace_back(Discard{txnid_, config_.config.metadata_servers});
  built_.reset();
}

void MetadataCommit::succeed(model::TxnId txnid, model::TxnSeq txnseq, bool already, Effects& out) {
  reply(Committed{txnid, txnseq, already}, out);
}

void MetadataCommit::reply(base::Result<Committed> outcome, Effects& out) {
  enter(Phase::ended);
  out.emplace_back(Reply{std::move(outcome)});
}

}  // namespace cantle::proto
