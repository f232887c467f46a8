#include "lib/meta/table_replica.h"

#include "lib/base/log.h"

namespace cantle::meta {

using namespace proto::replica;

namespace {
constexpr size_t kPendingMax = 80;  // above kStoresAtOnce
constexpr size_t kRecentTrees = 64;

FileInfo info_of(const wire::MetadataFile& file) {
  return {.txnid = file.map->txnid,
          .prev = file.map->prev_txnid,
          .txnseq = file.map->txnseq,
          .hash = file.hash(),
          .stored_ms = 0};
}
}  // namespace

TableReplica::TableReplica(Host& host, model::TableUuid uuid, std::string name)
    : host_(host), uuid_(uuid), name_(std::move(name)), machine_(host.self()), last_used_(host.timers().now()) {
  Opened opened{.now = now(), .wall_ms = host.wall_ms(), .files = {}, .seen_txnid = {}, .seen_txnseq = {}};
  const auto& tables = host.files().tables();
  if (const auto it = tables.find(uuid); it != tables.end()) {
    for (const auto& [txnid, file] : it->second.files) opened.files.push_back(file);
    opened.seen_txnid = it->second.seen_txnid;
    opened.seen_txnseq = it->second.seen_txnseq;
  }
  feed(std::move(opened));
}

TableReplica::~TableReplica() { *alive_ = false; }

void TableReplica::feed(Input input) {
  inputs_.push_back(std::move(input));
  if (pumping_) return;
  pumping_ = true;
  while (!inputs_.empty()) {
    const auto in = std::move(inputs_.front());
    inputs_.pop_front();
    for (const auto& e : machine_.step(in)) std::visit([&](const auto& x) { perform(x); }, e);
  }
  pumping_ = false;
  answer_loads();
}

const wire::MetadataFile* TableReplica::current() const {
  if (!machine_.current() || !last_.map || last_.map->txnid != machine_.config()->config.metadata_txnid) return nullptr;
  return &last_;
}

std::shared_ptr<const wire::MetadataTree> TableReplica::recent_tree(const model::TxnId& txnid) const {
  for (const auto& [id, tree] : recent_)
    if (id == txnid) return tree;
  return nullptr;
}

void TableReplica::config_seen(std::optional<base::Instant> asked, const proto::VersionedConfig& config) {
  feed(ConfigSeen{asked, config});
}

void TableReplica::tick() { feed(Tick{now(), host_.wall_ms()}); }

void TableReplica::store(const model::MdStore& request, StoreDone done) {
  last_used_ = now();
  const auto ticket = next_ticket_++;
  tickets_[ticket] = {request, std::move(done)};
  feed(StoreAsked{.now = now(),
                  .ticket = ticket,
                  .base = request.base,
                  .txnseq = request.base_txnseq.next(),
                  .txnid = request.txnid,
                  .hash = request.hash,
                  .proposer = request.proposer});
}

void TableReplica::offer(const wire::EncodedFile& file) { keep(file.file.map->txnid, {file.file, file.fresh}); }

void TableReplica::abort(const model::TxnId& txnid) { feed(Aborted{now(), txnid}); }

void TableReplica::keep(const model::TxnId& txnid, Pending pending) {
  if (!pending_.contains(txnid)) pending_order_.push_back(txnid);
  pending_[txnid] = std::move(pending);
  while (pending_order_.size() > kPendingMax) {
    pending_.erase(pending_order_.front());
    pending_order_.pop_front();
  }
}

// What is on the disk and not ahead of the current file is not needed in memory.
void TableReplica::let_go() {
  std::erase_if(pending_, [&](const auto& entry) {
    return machine_.has(entry.first) && entry.second.file.map->txnseq <= last_.map->txnseq;
  });
  std::erase_if(pending_order_, [&](const auto& txnid) { return !pending_.contains(txnid); });
}

base::Result<wire::MetadataFile> TableReplica::file_of(const model::TxnId& txnid) {
  if (last_.map && last_.map->txnid == txnid) return last_;
  if (const auto it = pending_.find(txnid); it != pending_.end()) return it->second.file;
  const auto it = machine_.files().find(txnid);
  if (it == machine_.files().end())
    return base::fail(base::Code::not_found, "file " + to_string(txnid) + " is not here");
  return host_.files().load(it->second, last_.map ? &last_ : nullptr);
}

base::Result<FileInfo> TableReplica::build(const Ticket& ticket, const model::TxnId& base, const model::TxnId& txnid) {
  if (const auto it = pending_.find(txnid); it != pending_.end()) return info_of(it->second.file);
  if (ticket.request.ops.empty()) return base::fail(base::Code::not_found, "no operations came with it");
  std::optional<wire::MetadataFile> base_file;
  if (!base.none()) {
    TRY_ASSIGN(auto loaded, file_of(base));
    base_file = std::move(loaded);
  }
  TRY_ASSIGN(const auto operations, wire::decode_operations(ticket.request.ops));
  const model::ApplyContext context{txnid, ticket.request.change, base_file ? base_file->hash() : std::string()};
  TRY_ASSIGN(auto map, model::apply(base_file ? base_file->map.get() : nullptr, operations, context));
  auto encoded =
      wire::encode_next(base_file ? &*base_file : nullptr, std::make_shared<const model::Metadata>(std::move(map)));
  const auto info = info_of(encoded.file);
  keep(txnid, {std::move(encoded.file), std::move(encoded.fresh)});
  return info;
}

void TableReplica::perform(const Build& e) {
  const auto ticket = tickets_.find(e.ticket);
  if (ticket == tickets_.end())
    return feed(Built{now(), e.ticket, base::fail(base::Code::not_found, "the request is gone")});
  feed(Built{now(), e.ticket, build(ticket->second, e.base, e.txnid)});
}

void TableReplica::perform(const Fetch& e) {
  const auto root = wire::node_hash(e.hash);
  if (!root) return feed(Fetched{now(), e.txnid, base::fail(root.error())});
  // The newest that is here shares most with it.
  const auto* like = last_.map ? &last_ : nullptr;
  for (const auto& [txnid, pending] : pending_)
    if (like == nullptr || pending.file.map->txnseq > like->map->txnseq) like = &pending.file;
  auto job = std::make_unique<FetchJob>(
      host_, name_, uuid_, *root, e.from, like,
      [this, txnid = e.txnid](base::Result<FetchedFile> result) { fetched(txnid, std::move(result)); });
  auto* started = job.get();
  jobs_[e.txnid] = std::move(job);
  started->start();
}

void TableReplica::fetched(const model::TxnId& txnid, base::Result<FetchedFile> result) {
  const auto job = jobs_.extract(txnid);  // lives until the end of this call
  if (!result) return feed(Fetched{now(), txnid, base::fail(std::move(result).error())});
  const auto info = info_of(result->file);
  if (info.txnid != txnid || result->file.map->table != uuid_)
    return feed(Fetched{now(), txnid, base::fail(base::Code::malformed, "the hash names another transaction's file")});
  keep(txnid, {std::move(result->file), std::move(result->nodes)});
  feed(Fetched{now(), txnid, info});
}

void TableReplica::perform(const Persist& e) {
  const auto it = pending_.find(e.txnid);
  if (it == pending_.end()) {
    FileInfo none;
    none.txnid = e.txnid;
    return feed(
        Persisted{now(), host_.wall_ms(), none, base::fail(base::Code::unavailable, "the file is not here any more")});
  }
  auto info = info_of(it->second.file);
  info.stored_ms = host_.wall_ms();
  host_.files().put(uuid_, name_, info, it->second.nodes,
                    [this, alive = std::weak_ptr<bool>(alive_), info](base::Status status) {
                      if (!alive.lock()) return;
                      feed(Persisted{now(), host_.wall_ms(), info, std::move(status)});
                      if (last_.map) let_go();
                    });
}

void TableReplica::perform(const Answer& e) {
  const auto it = tickets_.find(e.ticket);
  if (it == tickets_.end()) return;
  const auto done = std::move(it->second.done);
  tickets_.erase(it);
  if (done) done(e.status);
}

void TableReplica::perform(const Current& e) {
  auto file = file_of(e.file.txnid);
  if (!file) {
    base::log(base::Level::error, "metadata-unreadable",
              {{"table", name_}, {"txn", to_string(e.file.txnid)}, {"error", to_string(file.error())}});
    return;
  }
  last_ = std::move(*file);
  recent_.emplace_front(last_.map->txnid, last_.tree);
  if (recent_.size() > kRecentTrees) recent_.pop_back();
  let_go();
  if (on_current_) on_current_(last_);
}

void TableReplica::perform(const Seen& e) { host_.files().seen(uuid_, name_, e.txnid, e.txnseq); }

void TableReplica::perform(const Delete& e) {
  host_.files().remove(uuid_, e.files);
  for (const auto& txnid : e.files) pending_.erase(txnid);
}

void TableReplica::perform(const Alarm& e) {
  base::log(base::Level::error, "metadata-alarm", {{"table", name_}, {"text", e.text}});
}

void TableReplica::load(const model::TxnId& txnid, base::Duration limit, LoadDone done) {
  last_used_ = now();
  loads_.push_back({txnid, now() + limit, std::move(done)});
  machine_.set_needed(true);
  if (current() == nullptr && machine_.config()) feed(ConfigSeen{machine_.confirmed(), *machine_.config()});
  if (!pumping_) answer_loads();
}

void TableReplica::answer_loads() {
  std::vector<std::pair<LoadDone, base::Result<wire::MetadataFile>>> ready;
  const auto at = now();
  std::erase_if(loads_, [&](LoadWait& w) {
    if (const auto* file = current(); file != nullptr && file->map->txnid == w.txnid) {
      ready.emplace_back(std::move(w.done), *file);
      return true;
    }
    if (machine_.regressed()) {
      ready.emplace_back(std::move(w.done), base::fail(base::Code::regressed, machine_.alarm()));
      return true;
    }
    const auto& config = machine_.config();
    if (config && config->config.metadata_txnid != w.txnid) {
      ready.emplace_back(std::move(w.done), base::fail(base::Code::unavailable, "another file is current by now"));
      return true;
    }
    if (at < w.until) return false;
    ready.emplace_back(std::move(w.done), base::fail(base::Code::unavailable, "the current file has not been fetched"));
    return true;
  });
  if (loads_.empty()) machine_.set_needed(false);
  for (auto& [done, result] : ready) done(std::move(result));
}

}  // namespace cantle::meta
