#include "lib/proto/metadata_replica.h"

#include <algorithm>

#include "lib/base/testing.h"

namespace cantle::proto {

using namespace replica;

namespace {
// Before a file is known to be of this chain, it waits for the coordination service for this long: an aborted one whose
// md.abort came goes at once, whatever else nobody needs goes with the next sweep.
constexpr size_t kFilesDeletedAtOnce = 256;
}  // namespace

replica::Effects MetadataReplica::step(const Input& input) {
  Effects out;
  std::visit([&](const auto& in) { on(in, out); }, input);
  return out;
}

bool MetadataReplica::current() const {
  return config_ && regressed_.empty() && files_.contains(config_->config.metadata_txnid);
}

void MetadataReplica::on(const Opened& in, Effects&) {
  for (const auto& file : in.files) files_[file.txnid] = file;
  seen_txnid_ = in.seen_txnid;
  seen_txnseq_ = in.seen_txnseq;
  next_sweep_ = in.now + kSweepEvery;
}

void MetadataReplica::on(const ConfigSeen& in, Effects& out) {
  const auto& config = in.config.config;
  if (!in.asked && (regression(config) || (config_ && in.config.version < config_->version))) return;
  if (regression(config)) {
    const auto text = "the coordination service shows transaction " + to_string(config.metadata_txnid) + " at txnseq " +
                      to_string(config.metadata_txnseq) + ", but " + to_string(seen_txnid_) +
                      " was current at txnseq " + to_string(seen_txnseq_);
    if (regressed_ != text) out.emplace_back(Alarm{text});
    regressed_ = text;
    return;
  }
  regressed_.clear();
  if (in.asked) confirmed_ = std::max(confirmed_.value_or(*in.asked), *in.asked);
  config_ = in.config;
  if (config.metadata_txnid != seen_txnid_) {
    seen_txnid_ = config.metadata_txnid;
    seen_txnseq_ = config.metadata_txnseq;
    out.emplace_back(Seen{seen_txnid_, seen_txnseq_});
  }
  follow(out);
}

// S36: a lower txnseq, or another transaction at the same one.
bool MetadataReplica::regression(const model::TableConfig& config) {
  if (MUTANT("serve_after_regression")) return false;
  if (seen_txnid_.none()) return false;
  return config.metadata_txnseq < seen_txnseq_ ||
         (config.metadata_txnseq == seen_txnseq_ && config.metadata_txnid != seen_txnid_);
}

// Announces the current file, or brings it here.
void MetadataReplica::follow(Effects& out) {
  if (!config_ || regressed()) return;
  const auto& config = config_->config;
  const auto have = files_.find(config.metadata_txnid);
  if (have != files_.end()) {
    fetch_again_.reset();
    if (announced_ != config.metadata_txnid) {
      announced_ = config.metadata_txnid;
      out.emplace_back(Current{have->second});
    }
    return;
  }
  if (!model::is_member(config, self_) && !needed_) return;
  if (wanted_.contains(config.metadata_txnid) || fetch_again_.planned()) return;
  auto& wanted = wanted_[config.metadata_txnid];
  wanted.file.txnid = config.metadata_txnid;
  wanted.file.txnseq = config.metadata_txnseq;
  wanted.file.hash = config.metadata_hash;
  fetch(wanted, out);
}

void MetadataReplica::fetch(Wanted& wanted, Effects& out) {
  wanted.step = Wanted::Step::fetching;
  Fetch fetch{wanted.file.txnid, wanted.file.hash, {}};
  if (!wanted.proposer.name.empty()) fetch.from.push_back(wanted.proposer);
  if (config_)
    for (const auto& server : config_->config.metadata_servers)
      if (server != self_ && server != wanted.proposer) fetch.from.push_back(server);
  out.emplace_back(std::move(fetch));
}

void MetadataReplica::persist(Wanted& wanted, Effects& out) {
  wanted.step = Wanted::Step::persisting;
  // Mutant: an acknowledgement for what is still on its way to the disk.
  if (MUTANT("count_store_before_durable")) {
    for (const auto ticket : wanted.tickets) out.emplace_back(Answer{ticket, base::ok()});
    wanted.tickets.clear();
  }
  out.emplace_back(Persist{wanted.file.txnid});
  base_came(wanted.file.txnid, true, out);
}

void MetadataReplica::on(const StoreAsked& in, Effects& out) {
  const auto refuse = [&](base::Code code, std::string text) {
    out.emplace_back(Answer{in.ticket, base::fail(code, std::move(text))});
  };
  if (regressed()) return refuse(base::Code::regressed, regressed_);
  const auto have = files_.find(in.txnid);
  if (have != files_.end()) {
    if (have->second.hash == in.hash) return out.emplace_back(Answer{in.ticket, base::ok()}), void();
    out.emplace_back(Alarm{"transaction " + to_string(in.txnid) + " has two hashes"});
    return refuse(base::Code::diverged, "this transaction is stored here with another hash");
  }
  // Somebody's transaction with this txnseq is committed: this one can never be.
  if (in.txnseq <= seen_txnseq_ && in.txnid != seen_txnid_)
    return refuse(base::Code::conflict, "txnseq " + to_string(seen_txnseq_) + " is current already");
  const auto under_way = wanted_.find(in.txnid);
  if (under_way != wanted_.end()) {
    if (under_way->second.file.hash != in.hash)
      return refuse(base::Code::diverged, "this transaction came with another hash");
    under_way->second.tickets.push_back(in.ticket);
    return;
  }
  if (wanted_.size() >= kStoresAtOnce) return refuse(base::Code::overloaded, "too many files are being stored");
  auto& wanted = wanted_[in.txnid];
  wanted.file.txnid = in.txnid;
  wanted.file.txnseq = in.txnseq;
  wanted.file.hash = in.hash;
  wanted.tickets.push_back(in.ticket);
  wanted.proposer = in.proposer;
  wanted.builder = in.ticket;
  wanted.base = in.base;
  // With the base here the operations are enough, and say whether both come to the same bytes.
  const bool first = in.base.none() && in.txnseq.value == 1;
  const auto base = wanted_.find(in.base);
  if (first || files_.contains(in.base) || (base != wanted_.end() && base->second.step == Wanted::Step::persisting))
    build(wanted, out);
  else if (base != wanted_.end())
    wanted.step = Wanted::Step::waiting;
  else
    fetch(wanted, out);
}

void MetadataReplica::build(Wanted& wanted, Effects& out) {
  wanted.step = Wanted::Step::building;
  out.emplace_back(Build{wanted.builder, wanted.base, wanted.file.txnid});
}

// Those that wait for this base can be built, or must be fetched.
void MetadataReplica::base_came(const model::TxnId& base, bool here, Effects& out) {
  for (auto& [txnid, wanted] : wanted_) {
    if (wanted.step != Wanted::Step::waiting || wanted.base != base) continue;
    if (here)
      build(wanted, out);
    else
      fetch(wanted, out);
  }
}

void MetadataReplica::on(const Built& in, Effects& out) {
  for (auto& [txnid, wanted] : wanted_) {
    if (wanted.step != Wanted::Step::building || wanted.builder != in.ticket) continue;
    if (!in.file && in.file.error().code == base::Code::not_found) return fetch(wanted, out);  // no operations, no base
    if (!in.file || in.file->hash != wanted.file.hash || in.file->txnseq != wanted.file.txnseq) {
      const auto why = !in.file ? in.file.error().text : "they make a file with another hash";
      out.emplace_back(Alarm{"the operations of transaction " + to_string(txnid) +
                             " do not give here what they gave at " + wanted.proposer.name + ": " + why});
      return settle(txnid, base::fail(base::Code::diverged, "the operations give another file here: " + why), out);
    }
    wanted.file.prev = in.file->prev;
    return persist(wanted, out);
  }
}

void MetadataReplica::on(const Fetched& in, Effects& out) {
  const auto it = wanted_.find(in.txnid);
  if (it == wanted_.end() || it->second.step != Wanted::Step::fetching) return;
  if (!in.file) {
    const auto error = in.file.error();
    fetch_again_.failed(in.now);
    return settle(in.txnid, base::fail(base::Code::unavailable, "the file could not be fetched: " + error.text), out);
  }
  it->second.file.prev = in.file->prev;
  it->second.file.txnseq = in.file->txnseq;
  persist(it->second, out);
}

void MetadataReplica::on(const Persisted& in, Effects& out) {
  const auto it = wanted_.find(in.file.txnid);
  if (it == wanted_.end() || it->second.step != Wanted::Step::persisting) return;
  if (in.status) {
    auto& file = files_[in.file.txnid];
    file = it->second.file;
    file.stored_ms = in.wall_ms;
  } else {
    fetch_again_.failed(in.now);
  }
  settle(in.file.txnid, in.status, out);
  follow(out);
}

// By value: the name that it is called with may be that of the entry which it forgets.
void MetadataReplica::settle(model::TxnId txnid, const base::Status& status, Effects& out) {
  const auto it = wanted_.find(txnid);
  const auto tickets = std::move(it->second.tickets);
  wanted_.erase(it);
  if (!status) base_came(txnid, false, out);
  for (const auto ticket : tickets) out.emplace_back(Answer{ticket, status});
}

void MetadataReplica::on(const Tick& in, Effects& out) {
  if (fetch_again_.take(in.now)) follow(out);
  if (in.now < next_sweep_) return;
  next_sweep_ = in.now + kSweepEvery;
  sweep(in.wall_ms, out);
}

void MetadataReplica::on(const Aborted& in, Effects& out) {
  const auto it = files_.find(in.txnid);
  if (it == files_.end() || !lost(it->second, chain()))
    return;  // kept: its swap may be under way (S27); a sweep looks again
  files_.erase(it);
  out.emplace_back(Delete{{in.txnid}});
}

// Txnids of the chain, as far back from the current file as they are here.
MetadataReplica::Chain MetadataReplica::chain() const {
  Chain out;
  if (!config_) return out;
  auto txnid = config_->config.metadata_txnid;
  out[config_->config.metadata_txnseq] = txnid;
  for (auto it = files_.find(txnid); it != files_.end() && !it->second.prev.none(); it = files_.find(txnid)) {
    txnid = it->second.prev;
    if (it->second.txnseq.value == 0 || !out.emplace(model::TxnSeq{it->second.txnseq.value - 1}, txnid).second) break;
  }
  return out;
}

// It will never be current, and never was: the committed txnseq has reached its own, and the chain has another there.
bool MetadataReplica::lost(const FileInfo& file, const Chain& links) const {
  if (!config_ || regressed()) return false;
  const auto& config = config_->config;
  if (MUTANT("sweep_by_txnid_only")) return file.txnid != config.metadata_txnid;
  if (file.txnid == config.metadata_txnid || file.txnseq > config.metadata_txnseq) return false;
  const auto at = links.find(file.txnseq);
  return at != links.end() && at->second != file.txnid;
}

void MetadataReplica::sweep(base::WallMs wall_ms, Effects& out) {
  if (!config_ || regressed()) return;
  const auto& config = config_->config;
  const auto keep_ms = static_cast<base::WallMs>(base::to_ms(kFilesKeptFor));
  const auto links = chain();
  std::vector<model::TxnId> gone;
  for (const auto& [txnid, file] : files_) {
    if (gone.size() >= kFilesDeletedAtOnce) break;
    const bool recent =
        file.txnseq.value + kFilesKept > config.metadata_txnseq.value || file.stored_ms + keep_ms > wall_ms;
    if (lost(file, links) || (!recent && txnid != config.metadata_txnid && file.txnseq < config.metadata_txnseq))
      gone.push_back(txnid);
  }
  for (const auto& txnid : gone) files_.erase(txnid);
  if (!gone.empty()) out.emplace_back(Delete{std::move(gone)});
}

}  // namespace cantle::proto
