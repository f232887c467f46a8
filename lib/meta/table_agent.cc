#include "lib/meta/table_agent.h"

#include <algorithm>

#include "lib/base/log.h"

namespace cantle::meta {

TableAgent::TableAgent(Host& host, std::string name)
    : host_(host),
      name_(std::move(name)),
      distribution_(coord::distribution(model::Keyspace::range, name_)),
      reader_(host, host.layout().config(distribution_)) {
  reader_.on_read([this](const proto::ConfigAnswer& answer, ConfigReader::Asked asked) { on_config(answer, asked); });
  for (const auto& [uuid, table] : host.files().tables())
    if (table.name == name_) replica(uuid);
}

TableAgent::~TableAgent() { *alive_ = false; }

// Machines are not stepped from inside their own effects: what an effect brings back at once waits here.
void TableAgent::act(std::function<void()> fn) {
  todo_.push_back(std::move(fn));
  if (acting_) return;
  acting_ = true;
  const auto alive = weak();
  while (!todo_.empty()) {
    const auto next = std::move(todo_.front());
    todo_.pop_front();
    next();
    if (!alive.lock()) return;
  }
  acting_ = false;
}

TableReplica& TableAgent::replica(const model::TableUuid& uuid) {
  auto& slot = replicas_[uuid];
  if (!slot) slot = std::make_unique<TableReplica>(host_, uuid, name_);
  return *slot;
}

void TableAgent::on_config(const proto::ConfigAnswer& answer, ConfigReader::Asked asked) {
  if (!answer) return;
  // A table that is gone, or another one, is worth a sync.
  if (!asked && (!*answer || live_ == nullptr || live_->uuid() != (*answer)->config.table_uuid)) return hint();
  if (!*answer) {
    seen_none_ = true;
    none_at_ = *asked;
    live_ = nullptr;
    return;
  }
  seen_none_ = false;
  live_ = &replica((*answer)->config.table_uuid);
  live_->config_seen(asked, **answer);
}

const model::TableConfig* TableAgent::config() const {
  return live_ != nullptr && live_->machine().config() ? &live_->machine().config()->config : nullptr;
}

bool TableAgent::first_live_member() const {
  const auto* c = config();
  if (c == nullptr) return false;
  for (const auto& server : c->metadata_servers) {
    if (server == host_.self()) return true;
    if (host_.nodes().mdservers.contains(server)) return false;
  }
  return false;
}

void TableAgent::hint() {
  if (reading_) return;
  reading_ = true;
  next_poll_ = now() + kConfigPoll;
  reader_.read([this](const proto::ConfigAnswer&) { reading_ = false; });
}

void TableAgent::tick() {
  if (now() >= next_poll_) hint();
  for (auto& [uuid, r] : replicas_) r->tick();
  // Files of a creation that was never committed, or of a table that is gone: nobody will ever ask for them.
  std::erase_if(replicas_, [&](const auto& entry) {
    const auto& r = *entry.second;
    if (&r == live_ || !r.idle() || now() - r.last_used() < kForgetUnborn) return false;
    if (live_ == nullptr && !seen_none_) return false;
    host_.files().forget(entry.first);
    return true;
  });
  if (!changes_.empty()) {
    const auto list = changes_;
    for (const auto& change : list)
      if (change->machine || now() >= change->deadline) feed(change, proto::commit::Tick{now()});
  }
  const auto members = members_;
  for (const auto& member : members) feed_member(member, proto::member::Tick{now()});
  if (!gathered_.empty() && now() >= gather_until_) flush_gathered();
}

void TableAgent::store(const model::MdStore& request, Done<model::MdStoreReply> done) {
  if (request.table_uuid.none() || request.txnid.none() || request.hash.size() != 32)
    return done(base::fail(base::Code::invalid, "md.store needs table_uuid, txnid and a hash of 32 bytes"));
  replica(request.table_uuid).store(request, [txnid = request.txnid, done = std::move(done)](base::Status status) {
    if (!status) return done(base::fail(std::move(status).error()));
    done(model::MdStoreReply{txnid});
  });
}

void TableAgent::abort(const model::MdAbort& request) {
  const auto it = replicas_.find(request.table_uuid);
  if (it == replicas_.end()) return;
  // It may be deleted only once TableConfig has passed it: look first.
  reader_.read([this, request](const proto::ConfigAnswer&) {
    const auto again = replicas_.find(request.table_uuid);
    if (again != replicas_.end()) again->second->abort(request.txnid);
  });
}

void TableAgent::edit_config(const std::function<void(model::TableConfig&)>& edit,
                             std::function<void(base::Status)> done) {
  if (live_ == nullptr || !live_->machine().config())
    return done(base::fail(base::Code::unavailable, "TableConfig has not been read"));
  auto to = live_->machine().config()->config;
  edit(to);
  to.writer = writer_token();
  host_.session().set(host_.layout().config(distribution_), to_text(to), live_->machine().config()->version,
                      [this, alive = weak(), done = std::move(done)](base::Result<coord::Stat> result) {
                        if (!alive.lock()) return;
                        hint();
                        done(result ? base::ok() : base::Status(base::fail(std::move(result).error())));
                      });
}

model::MdTableStatus TableAgent::status() const {
  model::MdTableStatus s;
  s.name = name_;
  s.working = static_cast<uint32_t>(changes_.size() + gathered_.size());
  if (live_ == nullptr) return s;
  const auto& m = live_->machine();
  s.table_uuid = live_->uuid();
  s.regressed = m.regressed();
  s.alarm = m.alarm();
  s.files = static_cast<uint32_t>(m.files().size());
  s.age_ms = age().ms;
  if (const auto* c = config()) {
    s.member = model::is_member(*c, host_.self());
    s.coord_txnseq = c->metadata_txnseq;
    s.dropped = c->dropped;
  }
  if (const auto* file = live_->last()) {
    s.txnid = file->map->txnid;
    s.txnseq = file->map->txnseq;
    s.partitions = file->map->partitions.size();
  }
  s.current = live_->current() != nullptr;
  return s;
}

}  // namespace cantle::meta
