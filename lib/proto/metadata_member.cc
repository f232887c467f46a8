#include "lib/proto/metadata_member.h"

#include <algorithm>

#include "lib/base/testing.h"

namespace cantle::proto {

using namespace member;

member::Effects MetadataMember::step(const Input& input) {
  Effects out;
  if (phase_ == Phase::ended) return out;
  std::visit([&](const auto& in) { on(in, out); }, input);
  return out;
}

void MetadataMember::enter(Phase phase) {
  phase_ = phase;
  backoff_.cancel();
}

void MetadataMember::on(const Asked&, Effects& out) {
  if (phase_ == Phase::idle) read(out);
}

void MetadataMember::read(Effects& out) {
  enter(Phase::reading);
  out.emplace_back(Read{});
}

void MetadataMember::on(const Tick& in, Effects& out) {
  if (in.now >= request_.deadline) {
    overdue(in.now, out);
    if (phase_ == Phase::ended) return;
  }
  if (!backoff_.take(in.now)) return;
  if (phase_ == Phase::reading)
    out.emplace_back(Read{});
  else if (phase_ == Phase::storing)
    store(out);
}

void MetadataMember::overdue(base::Instant now, Effects& out) {
  const bool may_have_happened = ambiguous_ || phase_ == Phase::swapping;
  if (may_have_happened && now < request_.deadline + kMdResolve) return;
  if (may_have_happened)
    return reply(base::fail(base::Code::outcome_unknown, "the answer to the swap of the list did not come in time"),
                 out);
  if (phase_ == Phase::storing)
    return reply(base::fail(base::Code::unavailable, std::to_string(stored_.size()) + " of the " +
                                                         std::to_string(wanted_list().size()) +
                                                         " remaining servers have the current file: not a majority"),
                 out);
  reply(base::fail(base::Code::unavailable, "out of time"), out);
}

void MetadataMember::on(const ConfigRead& in, Effects& out) {
  if (phase_ != Phase::reading) return;
  if (!in.answer) return backoff_.failed(in.now);
  if (!*in.answer) return reply(base::fail(base::Code::no_such_table, "there is no such table"), out);
  backoff_.reset();
  if ((*in.answer)->version != config_.version) ambiguous_ = false;  // what was under way at the old version fails
  config_ = **in.answer;
  if (settled()) return reply(Members{config_.config.metadata_servers, config_.config.metadata_txnseq}, out);
  if (wanted_list().empty())
    return reply(base::fail(base::Code::invalid, request_.server.name + " is the last metadata server of the table"),
                 out);
  enter(Phase::loading);
  out.emplace_back(Load{config_.config.metadata_txnid});
}

bool MetadataMember::settled() const {
  return model::is_member(config_.config, request_.server) == (request_.kind == Kind::join);
}

std::vector<model::ServerId> MetadataMember::wanted_list() const {
  auto list = config_.config.metadata_servers;
  std::erase(list, request_.server);
  if (request_.kind == Kind::join) list.push_back(request_.server);
  return list;
}

void MetadataMember::on(const Loaded& in, Effects& out) {
  if (phase_ != Phase::loading) return;
  if (!in.map) {
    enter(Phase::reading);
    return backoff_.failed(in.now);
  }
  // A server that joins has the file durable now, so the new list has a majority with it: the old one had.
  if (request_.kind == Kind::join || MUTANT("leave_without_majority")) return swap(out);
  enter(Phase::storing);
  stored_.clear();
  asked_.clear();
  store(out);
}

void MetadataMember::store(Effects& out) {
  for (const auto& server : wanted_list())
    if (!stored_.contains(server) && asked_.insert(server).second)
      out.emplace_back(Store{server, config_.config.metadata_txnid});
}

void MetadataMember::on(const Stored& in, Effects& out) {
  if (phase_ != Phase::storing || in.txnid != config_.config.metadata_txnid) return;
  asked_.erase(in.by);
  if (!in.status) {
    // `conflict`: another file is current by now.
    if (in.status.error().code == base::Code::conflict) return read(out);
    if (!backoff_.planned()) backoff_.failed(in.now);
    return;
  }
  stored_.insert(in.by);
  const auto remaining = wanted_list();
  size_t have = 0;
  for (const auto& server : remaining) have += stored_.contains(server) ? 1 : 0;
  if (have >= remaining.size() / 2 + 1) swap(out);  // S30
}

void MetadataMember::swap(Effects& out) {
  enter(Phase::swapping);
  Swap swap{config_.version, config_.config};
  swap.to.metadata_servers = wanted_list();
  out.emplace_back(std::move(swap));
}

void MetadataMember::on(const Swapped& in, Effects& out) {
  if (phase_ != Phase::swapping) return;
  switch (in.result) {
    case SwapResult::done: return reply(Members{wanted_list(), config_.config.metadata_txnseq}, out);
    case SwapResult::refused:
    case SwapResult::conflict: return read(out);
    case SwapResult::unknown: ambiguous_ = true; return read(out);
    case SwapResult::unsent: enter(Phase::reading); return backoff_.failed(in.now);
  }
}

void MetadataMember::reply(base::Result<Members> outcome, Effects& out) {
  enter(Phase::ended);
  out.emplace_back(Reply{std::move(outcome)});
}

}  // namespace cantle::proto
