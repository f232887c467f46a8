// What the coordination service and the metadata servers tell: who lives, which tables there are, their maps.
#include <algorithm>

#include "cmd/partd/service.h"
#include "lib/base/log.h"
#include "lib/base/testing.h"
#include "lib/wire/codec.h"

namespace cantle::partd {

using base::Code;
using base::Level;

namespace {
constexpr base::Duration kChangeTimeout = std::chrono::seconds(10);
constexpr base::Duration kMapTimeout = std::chrono::seconds(5);
constexpr base::Duration kSplitReadTimeout = std::chrono::seconds(1);
}  // namespace

// --- who lives ----------------------------------------------------------------------------------------------

// A watch is a hint: after each, and on the slow timer, everything is read again (S33).
void Service::read_live() {
  if (live_reading_) {
    live_again_ = true;
    return;
  }
  live_reading_ = true;
  session_->children(
      layout_.active(), [this] { read_live(); },
      [this](base::Result<coord::Children> children) {
        if (!children) {
          live_reading_ = false;
          return;
        }
        servers_->refresh([this] { live_came(); });
      });
}

void Service::live_came() {
  live_reading_ = false;
  std::map<model::ServerId, model::Incarnation> live;
  for (const auto& entry : servers_->all())
    if (entry.live && entry.active.role == coord::Role::partd) live[entry.id] = entry.active.incarnation;
  if (session_->connected()) {
    live_known_ = true;
    // Who came back is waited for: the pusher hears of it now, and not when it asks the next time.
    const bool news = std::exchange(live_told_, live) != live;
    input(push::LiveRead{std::move(live)});
    if (news) notify_pusher("wake", {});
  }
  links_->refresh();
  read_numbers();
  if (std::exchange(live_again_, false))
    timers_.after(client::kServersRefreshMin, [this, alive = alive_] {
      if (*alive) read_live();
    });
}

// A data directory's number never changes: it is read once, and again when another directory has taken the name.
void Service::read_numbers() {
  for (const auto& entry : servers_->all()) {
    const auto known = numbers_.find(entry.id);
    if (entry.active.role != coord::Role::partd ||
        (known != numbers_.end() && known->second.instance == entry.active.instance) ||
        !asking_number_.insert(entry.id).second)
      continue;
    session_->get(layout_.info(entry.id), nullptr,
                  [this, id = entry.id, instance = entry.active.instance](base::Result<coord::Node> node) {
                    asking_number_.erase(id);
                    if (!node) return;
                    if (const auto info = coord::parse_info(node->value); info && info->number.value != 0)
                      numbers_[id] = {instance, info->number};
                  });
  }
}

// --- a name that another directory had ----------------------------------------------------------------------

// A new data directory under a known name: if METADATA gives that name anything to hold, it is lost here, and this
// server must not even register (S6).
void Service::check_name(std::function<void(base::Status)> answer) {
  session_->children(layout_.distributions(), nullptr,
                     [this, answer = std::move(answer)](base::Result<coord::Children> children) {
                       if (!children) return answer(base::fail(children.error()));
                       std::vector<std::string> tables;
                       for (const auto& name : children->names)
                         if (const auto d = coord::parse_distribution(name)) tables.push_back(d->table);
                       check_tables(std::move(tables), answer);
                     });
}

namespace {

bool holds(const std::vector<model::Assignment>& assignments, const model::ServerId& server) {
  return std::any_of(assignments.begin(), assignments.end(), [&](const auto& a) { return a.server == server; });
}
bool holds(const model::Partition& p, const model::ServerId& server) {
  return holds(p.assignments, server) ||
         (p.split && (holds(p.split->low.assignments, server) || holds(p.split->high.assignments, server)));
}

}  // namespace

void Service::check_tables(std::vector<std::string> tables, std::function<void(base::Status)> answer) {
  if (tables.empty()) return answer(base::ok());
  const auto table = tables.back();
  tables.pop_back();
  md_->get(
      table, {}, kMapTimeout, [this, table, tables, answer](base::Result<std::shared_ptr<const model::Metadata>> map) {
        if (!map && map.error().code != Code::no_such_table) return answer(base::fail(map.error()));
        if (map && !(*map)->dropped)
          for (const auto& p : (*map)->partitions)
            if (holds(p, self_))
              return answer(base::fail(
                  Code::identity,
                  "METADATA of table " + table + " says that server " + self_.name + " holds partition " +
                      to_string(p.id) +
                      ", and this data directory is new. Bring the old one back; if it is lost: zkctl node replace " +
                      self_.name + " NEW"));
        check_tables(tables, answer);
      });
}

// --- which tables ---------------------------------------------------------------------------------------------

void Service::read_tables() {
  if (tables_reading_) {
    tables_again_ = true;
    return;
  }
  tables_reading_ = true;
  session_->children(
      layout_.distributions(), [this] { read_tables(); },
      [this](base::Result<coord::Children> children) {
        tables_reading_ = false;
        if (children) tables_came(children->names);
        if (std::exchange(tables_again_, false)) read_tables();
      });
}

void Service::tables_came(const std::vector<std::string>& names) {
  for (const auto& name : names)
    if (const auto d = coord::parse_distribution(name)) follow(d->table, d->keyspace);
  tables_known_ = true;
  ask_about_dropped();
  for (auto it = parked_.begin(); it != parked_.end();) {
    const auto table = (it++)->first;
    if (!tables_.contains(table)) refuse_unknown(table);
  }
}

void Service::follow(const std::string& table, model::Keyspace keyspace) {
  auto& t = tables_[table];
  t.keyspace = keyspace;
  if (t.follower) return;
  client::FollowerEvents events;
  events.on_map = [this, table](std::shared_ptr<const model::Metadata> map) { map_came(table, std::move(map)); };
  events.on_gone = [this, table] {
    tables_[table].gone = true;
    ask_about_dropped();
  };
  events.on_alarm = [table](const base::Error& error) {
    base::log(Level::error, "map-alarm", {{"table", table}, {"error", to_string(error)}});
  };
  t.follower = std::make_unique<client::MapFollower>(*md_, table, std::move(events));
}

void Service::map_came(const std::string& table, std::shared_ptr<const model::Metadata> map) {
  if (auto& t = tables_[table]; t.uuid != map->table) {  // dropped and made again: another table, which begins at 1
    t.uuid = map->table;
    t.observed_wanted = t.observed_done = {};
  }
  tables_[table].gone = false;
  if (map->replication == model::Replication::push)
    input(push::MapRead{table, std::move(map)});
  else
    quorum_->map_came(table, std::move(map));
  tables_[table].had_map = true;
  links_->want(partners());
  unpark(table);
}

void Service::read_map(const std::string& table,
                       std::function<void(base::Result<std::shared_ptr<const model::Metadata>>)> done) {
  md_->config(table, kSplitReadTimeout, [this, table, done = std::move(done)](base::Result<model::TableConfig> config) {
    if (!config) return done(base::fail(std::move(config).error()));
    auto map = installed(table);
    if (map && map->table == config->table_uuid && map->txnseq >= config->metadata_txnseq) return done(std::move(map));
    hint(table, config->metadata_txnseq);
    md_->get(table, config->metadata_txnseq, kSplitReadTimeout, done);
  });
}

void Service::hint(const std::string& table, model::TxnSeq at_least) {
  auto it = tables_.find(table);
  if (it == tables_.end()) return read_tables();
  if (it->second.follower) it->second.follower->hint(at_least);
}

// Copies of tables that nobody knows any more: were they dropped while this server was away?
void Service::ask_about_dropped() {
  std::set<model::TableUuid> unknown;
  std::set<model::TableUuid> known;
  for (const auto& name : machine_->tables())
    if (const auto map = machine_->installed(name); map && !tables_[name].gone) known.insert(map->table);
  for (const auto& name : quorum_->tables().tables())
    if (const auto map = quorum_->tables().installed(name); map && !tables_[name].gone) known.insert(map->table);
  for (const auto& held : machine_->held())
    if (!known.contains(held.table_uuid)) unknown.insert(held.table_uuid);
  for (const auto& uuid : quorum_->tables().uuids())
    if (!known.contains(uuid)) unknown.insert(uuid);
  for (const auto& uuid : unknown)
    session_->get(layout_.dropped(uuid), nullptr, [this, uuid](base::Result<coord::Node> node) {
      if (!node) return;
      input(push::TableDropped{uuid});
      quorum_->table_dropped(uuid);
    });
}

// --- what this server publishes ---------------------------------------------------------------------------------

void Service::perform(push::FetchMap& e) { hint(e.table, e.at_least); }

void Service::perform(push::Index& e) {
  engine_->drain([this, alive = alive_, table = e.table, txnseq = e.txnseq](const base::Status& s) {
    if (*alive && s) input(push::Indexed{table, txnseq});
  });
}

void Service::perform(push::PublishObserved& e) {
  tables_[e.table].observed_wanted = e.txnseq;
  publish_observed(e.table);
}

// Conditional on the version read, so that a request of an older life that is still under way changes nothing (S34).
void Service::publish_observed(const std::string& table) {
  auto& t = tables_[table];
  if (t.publishing || t.observed_done >= t.observed_wanted) return;
  t.publishing = true;
  const auto path = layout_.observed(coord::distribution(t.keyspace, table), self_);
  const auto txnseq = t.observed_wanted;
  const auto text = coord::observed_text({.txnseq = txnseq, .incarnation = dir_->identity().incarnation});
  const auto written = [this, table, txnseq](const base::Error* error) {
    CRASH_POINT("partd.observed");
    auto& at = tables_[table];
    at.publishing = false;
    if (error != nullptr && error->code == Code::not_found) return;  // the table is gone, and nobody waits for this
    if (error != nullptr) return observed_failed(table, to_string(*error));
    at.observed_done = txnseq;
    publish_observed(table);
  };
  session_->get(path, nullptr, [this, path, text, written](base::Result<coord::Node> node) {
    CRASH_POINT("partd.before_observed");
    if (node)
      return session_->set(path, text, node->stat.version,
                           [written](base::Result<coord::Stat> r) { written(r ? nullptr : &r.error()); });
    if (node.error().code != Code::not_found) return written(&node.error());
    session_->create(path, text, coord::CreateMode::persistent,
                     [written](base::Result<std::string> r) { written(r ? nullptr : &r.error()); });
  });
}

void Service::observed_failed(const std::string& table, const std::string& why) {
  base::log(Level::info, "observed", {{"table", table}, {"error", why}});
  timers_.after(kRetryEvery, [this, table, alive = alive_] {
    if (*alive) publish_observed(table);
  });
}

void Service::perform(push::MapShown& e) {
  notify_pusher("map.changed", wire::encode(model::MapChanged{e.table, e.txnseq}));
  publish_systems();
}

void Service::perform(push::MarkAvailable& e) {
  client::ChangeSpec spec;
  spec.table = e.table;
  spec.operations = {model::ops::MarkAvailable{e.assignment, self_}};
  spec.gather = true;
  base::log(Level::info, "filled",
            {{"table", e.table}, {"partition", to_string(e.partition)}, {"assignment", to_string(e.assignment)}});
  CRASH_POINT("partd.before_available");
  md_->change(std::move(spec), kChangeTimeout, [this, table = e.table](base::Result<model::MdChangeReply> r) {
    CRASH_POINT("partd.available");
    if (!r) base::log(Level::warn, "mark-available", {{"table", table}, {"error", to_string(r.error())}});
    hint(table, r ? r->txnseq : model::TxnSeq{});
  });
}

// regions/<n>/systems/<server>: tenure and log end, for people and for a rebuild. Written at start, fill, split and
// stop.
void Service::publish_systems() {
  for (const auto& c : copies()) {
    if (c.copy.aside || c.role == "unknown" || c.role == "child") continue;
    const auto map = installed(c.table);
    const auto* p = map ? map->partitions.find(c.copy.partition) : nullptr;
    const auto* a = p == nullptr ? nullptr : model::find_assignment(*p, c.copy.assignment);
    const auto end = engine_->durable(c.copy.partition);
    if (a == nullptr || !end) continue;
    const auto path = layout_.system(coord::distribution(map->keyspace, c.table), c.copy.region, self_);
    // Who leads changes too often to be told here.
    const bool push = map->replication == model::Replication::push;
    const std::string what = to_string(c.copy.assignment) + (push ? c.role : "");
    if (!draining_ && systems_done_[path] == what) continue;
    systems_done_[path] = what;
    systems_.emplace_back(path, coord::system_text({.slot = a->slot, .assignment = a->id, .version = end->lsn}));
  }
  next_system();
}

void Service::next_system() {
  if (writing_system_ || systems_.empty() || !session_->connected()) return;
  writing_system_ = true;
  const std::string path = std::move(systems_.front().first), text = std::move(systems_.front().second);
  systems_.pop_front();
  const auto next = [this, alive = alive_] {
    if (!*alive) return;
    writing_system_ = false;
    next_system();
  };
  session_->set(path, text, coord::kAnyVersion, [this, path, text, next](base::Result<coord::Stat> r) {
    if (r || r.error().code != Code::not_found) return next();
    session_->create(path, text, coord::CreateMode::persistent, [next](base::Result<std::string>) { next(); });
  });
}

// --- replpush -----------------------------------------------------------------------------------------------------

// To the connections that asked for mover.view, and to the socket named by --pusher.
void Service::notify_pusher(std::string_view method, std::string_view params) {
  std::erase_if(pusher_connections_, [&](uint64_t connection) { return !server_.notify(connection, method, params); });
  if (pusher_) pusher_->notify(method, params);
}

// What replpush has recorded: for the live marks, and for the journal's retention.
void Service::read_positions() {
  if (!positions_) {
    auto opened = store::PositionStore::open(config_.own.data_dir, false);
    if (!opened && opened.error().code != Code::not_found && opened.error().text != positions_trouble_) {
      positions_trouble_ = opened.error().text;
      base::log(Level::warn, "positions", {{"error", positions_trouble_}});
    }
    if (!opened) return;  // replpush has not run yet, mostly
    positions_trouble_.clear();
    positions_ = std::move(*opened);
  }
  auto all = positions_->all();
  if (!all) {
    base::log(Level::warn, "positions", {{"error", to_string(all.error())}});
    positions_.reset();
    return;
  }
  for (const auto& [key, position] : *all) input(push::PushedTo{key.own, key.target, position.confirmed.lsn});
  const auto needed = machine_->needed();
  if (needed.empty()) return;
  std::map<model::AssignmentId, store::TenureId> ids;
  for (const auto& t : engine_->tenures()) ids[t.id.assignment] = t.id;
  for (const auto& [own, lsn] : needed)
    if (const auto it = ids.find(own); it != ids.end()) engine_->set_needed(it->second, lsn);
}

// --- requests that wait for a newer map -----------------------------------------------------------------------------

void Service::park(const std::string& table, model::TxnSeq at_least, base::Instant deadline, size_t bytes,
                   std::function<void()> again, std::function<void()> give_up) {
  hint(table, at_least);
  if (parked_count_ >= kParkedMax || parked_bytes_ + bytes > kParkedBytesMax) return give_up();
  parked_count_++;
  parked_bytes_ += bytes;
  parked_[table].push_back({deadline, at_least, bytes, std::move(again), std::move(give_up)});
}

void Service::park_unknown(const std::string& table, base::Instant deadline, size_t bytes, std::function<void()> again,
                           std::function<void()> give_up) {
  if (!session_->connected()) return give_up();
  if (const auto it = tables_.find(table);
      it != tables_.end() && it->second.had_map && !it->second.gone && installed(table) && installed(table)->dropped)
    return give_up();
  park(table, {1}, std::min(deadline, loop_.now() + kUnknownWait), bytes, std::move(again), std::move(give_up));
  if (!tables_.contains(table)) read_tables();
}

void Service::refuse_unknown(const std::string& table) {
  auto node = parked_.extract(table);
  if (node.empty()) return;
  for (auto& p : node.mapped()) {
    parked_count_--;
    parked_bytes_ -= p.bytes;
    p.give_up();
  }
}

void Service::unpark(const std::string& table) {
  auto it = parked_.find(table);
  const auto map = installed(table);
  if (it == parked_.end() || !map) return;
  std::deque<Parked> keep;
  for (auto& p : it->second) {
    if (p.at_least > map->txnseq) {
      keep.push_back(std::move(p));
      continue;
    }
    parked_count_--;
    parked_bytes_ -= p.bytes;
    loop_.defer(std::move(p.again));
  }
  if (keep.empty())
    parked_.erase(it);
  else
    it->second = std::move(keep);
}

void Service::expire_parked() {
  const auto at = loop_.now();
  for (auto it = parked_.begin(); it != parked_.end();) {
    std::erase_if(it->second, [&](Parked& p) {
      if (p.deadline > at) return false;
      parked_count_--;
      parked_bytes_ -= p.bytes;
      p.give_up();
      return true;
    });
    it = it->second.empty() ? parked_.erase(it) : std::next(it);
  }
}

}  // namespace cantle::partd
