#include "lib/meta/service.h"

#include "lib/meta/chores.h"
#include "lib/meta/hint.h"

namespace cantle::meta {

using base::Code;

Service::Service(Host& host) : host_(host), chores_(std::make_unique<Chores>(host)) {}
Service::~Service() { *alive_ = false; }

void Service::start() {
  for (const auto& [uuid, table] : host_.files().tables())
    if (model::validate_table_name(table.name)) (void)open(table.name);
  tick();
}

void Service::on_event(coord::Event event) {
  if (event != coord::Event::expired) {
    if (event == coord::Event::connected) {
      list_tables();
      for (const auto& [name, agent] : tables_) agent->hint();
    }
    return;
  }
  armed_ = false;
  for (const auto& [name, agent] : tables_) agent->session_lost();
}

bool Service::ready() const {
  if (!listed_) return false;
  for (const auto& [name, agent] : tables_)
    if (agent->live() != nullptr && !agent->live()->machine().confirmed() && !agent->live()->machine().regressed())
      return false;
  return true;
}

TableAgent* Service::table(const std::string& name) {
  const auto it = tables_.find(name);
  return it != tables_.end() ? it->second.get() : nullptr;
}

base::Result<TableAgent*> Service::open(const std::string& name) {
  if (auto* there = table(name)) return there;
  TRY(model::validate_table_name(name));
  if (tables_.size() >= kTablesMax) return base::fail(Code::overloaded, "too many tables");
  auto& slot = tables_[name];
  slot = std::make_unique<TableAgent>(host_, name);
  slot->hint();
  return slot.get();
}

void Service::tick() {
  host_.timers().after(kAgentTick, [this, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.lock()) tick();
  });
  const auto now = host_.timers().now();
  if (now >= next_list_) list_tables();
  if (now >= next_flush_) {
    next_flush_ = now + kTablesPoll;
    host_.files().flush();
  }
  for (auto it = tables_.begin(); it != tables_.end();) {
    auto& agent = *it->second;
    agent.tick();
    chores_->tick(agent);
    if (agent.gone()) {
      chores_->forget(it->first);
      it = tables_.erase(it);
    } else {
      ++it;
    }
  }
}

void Service::list_tables() {
  if (listing_) return;
  listing_ = true;
  next_list_ = host_.timers().now() + kTablesPoll;
  const std::weak_ptr<bool> alive = alive_;
  const auto path = host_.layout().distributions();
  host_.session().sync(path, [this, alive, path](base::Result<base::Nothing> synced) {
    if (!alive.lock()) return;
    if (!synced) {
      listing_ = false;
      return;
    }
    auto watch = hint_watch(armed_, alive_, [this] { list_tables(); });
    host_.session().children(path, std::move(watch), [this, alive](base::Result<coord::Children> names) {
      if (!alive.lock()) return;
      listing_ = false;
      if (!names) {
        armed_ = false;
        return;
      }
      listed_ = true;
      for (const auto& name : names->names)
        if (const auto d = coord::parse_distribution(name); d && d->keyspace == model::Keyspace::range)
          (void)open(d->table);
    });
  });
}

// --- methods ------------------------------------------------------------------------------------------------

template <class Reply>
void Service::look_up(const std::string& name, std::function<base::Result<Reply>(TableAgent&)> ask, Done<Reply> done) {
  auto agent = open(name);
  if (!agent) return done(base::fail(std::move(agent).error()));
  auto first = ask(**agent);
  const bool maybe_later =
      !first && (first.error().code == Code::unavailable || first.error().code == Code::no_such_table);
  if (!maybe_later || !host_.session().connected()) return done(std::move(first));
  // It may have been made, or changed, a moment ago: look before saying no.
  (*agent)->read_config([this, name, ask = std::move(ask), done = std::move(done)](const proto::ConfigAnswer&) {
    auto* again = table(name);
    if (again == nullptr) return done(base::fail(Code::no_such_table, "there is no table " + name));
    done(ask(*again));
  });
}

void Service::change(const model::MdChange& request, Done<model::MdChangeReply> done) {
  auto agent = open(request.table);
  if (!agent) return done(base::fail(std::move(agent).error()));
  (*agent)->change(request, std::move(done));
}

void Service::store(const model::MdStore& request, Done<model::MdStoreReply> done) {
  auto agent = open(request.table);
  if (!agent) return done(base::fail(std::move(agent).error()));
  (*agent)->store(request, std::move(done));
}

void Service::abort(const model::MdAbort& request) {
  if (auto* agent = table(request.table)) agent->abort(request);
}

void Service::outcome(const model::MdOutcome& request, Done<model::MdOutcomeReply> done) {
  auto agent = open(request.table);
  if (!agent) return done(base::fail(std::move(agent).error()));
  (*agent)->outcome(request, std::move(done));
}

void Service::find(const model::MdFind& request, Done<model::MdFindReply> done) {
  look_up<model::MdFindReply>(
      request.table, [request](TableAgent& a) { return a.find(request); }, std::move(done));
}

void Service::get(const model::MdGet& request, Done<model::MdGetReply> done) {
  look_up<model::MdGetReply>(
      request.table, [request](TableAgent& a) { return a.get(request); }, std::move(done));
}

void Service::discover(const model::MdDiscover& request, Done<model::MdDiscoverReply> done) {
  look_up<model::MdDiscoverReply>(
      request.table, [request](TableAgent& a) { return a.discover(request); }, std::move(done));
}

base::Result<model::MdFetchReply> Service::fetch(const model::MdFetch& request) {
  if (request.hashes.size() > model::kMdFetchNodes)
    return base::fail(Code::too_large, "md.fetch takes at most " + std::to_string(model::kMdFetchNodes) + " hashes");
  model::MdFetchReply reply;
  size_t bytes = 0;
  for (const auto& raw : request.hashes) {
    TRY_ASSIGN(const auto hash, wire::node_hash(raw));
    const auto node = host_.files().has_node(hash) ? host_.files().node(hash) : nullptr;
    if (node && !reply.nodes.empty() && bytes + node->size() > model::kMdFetchBytes) break;
    bytes += node ? node->size() : 0;
    reply.nodes.push_back(node ? *node : std::string());
  }
  return reply;
}

void Service::join(const model::MdJoin& request, Done<model::MdMembersReply> done) {
  auto agent = open(request.table);
  if (!agent) return done(base::fail(std::move(agent).error()));
  (*agent)->join(std::move(done));
}

void Service::leave(const model::MdLeave& request, Done<model::MdMembersReply> done) {
  auto agent = open(request.table);
  if (!agent) return done(base::fail(std::move(agent).error()));
  (*agent)->leave(request.server, std::move(done));
}

std::vector<model::MdTableStatus> Service::status() const {
  std::vector<model::MdTableStatus> out;
  for (const auto& [name, agent] : tables_) {
    if (agent->live() == nullptr) continue;
    auto s = agent->status();
    s.driving = chores_->driving(name);
    out.push_back(std::move(s));
  }
  return out;
}

}  // namespace cantle::meta
