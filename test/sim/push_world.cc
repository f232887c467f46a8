#include "test/sim/push_world.h"

#include <algorithm>
#include <set>

#include "test/sim/partd.h"
#include "test/sim/pusher.h"

namespace cantle::sim {

namespace {

constexpr Duration kRestWithin = 120s;  // virtual time from the end of the faults to everything at rest
constexpr Duration kProbeWithin = 8s;
constexpr Duration kSweepEvery = 700ms;

Load draw_load(base::Random& random) {
  Load load;
  load.keys = 8 + random.below(30);
  load.think_max = std::chrono::milliseconds(10 + random.below(80));
  if (random.chance(0.3)) load.level_one = 0.5;
  if (random.chance(0.2)) load.big = 0.2;
  return load;
}

}  // namespace

Chaos Chaos::draw(base::Random& random) {
  Chaos c;
  const auto on = [&](double p) { return random.chance(p); };
  c.kill = on(0.5), c.power = on(0.3), c.crash_at_effect = on(0.3), c.pause = on(0.25);
  c.cut = on(0.35), c.lossy = on(0.3), c.coord_faults = on(0.35), c.coord_outage = on(0.2);
  c.clocks = on(0.2), c.fail_sync = on(0.15), c.full = on(0.1), c.slow_disk = on(0.2);
  c.split = on(0.75), c.replace = on(0.3), c.lose_server = on(0.25), c.wipe = on(0.1), c.abort = on(0.25),
  c.operators_die = on(0.3);
  c.tables = on(0.15), c.small_retention = on(0.3);
  c.replicas = on(0.85) ? 3 : on(0.5) ? 1 : 2;
  c.servers = c.replicas + 1 + random.below(3);
  if (c.replicas < 3) c.lose_server = c.wipe = false;  // there is nothing that could survive it
  c.flip = c.replicas > 1 && on(0.1);
  if (c.flip) c.lose_server = c.wipe = false;  // one copy at a time
  c.clients = 1 + random.below(3);
  c.lasts = std::chrono::milliseconds(1500 + random.below(5000));
  return c;
}

Chaos Chaos::draw_merges(base::Random& random) {
  Chaos c = draw(random);
  c.split = c.merge = true;
  c.lasts += std::chrono::milliseconds(random.below(3000));
  return c;
}

std::string Chaos::text() const {
  std::string out = "servers=" + std::to_string(servers) + " k=" + std::to_string(replicas);
  const auto say = [&](bool on, const char* name) {
    if (on) out += std::string(" ") + name;
  };
  say(kill, "kill"), say(power, "power"), say(crash_at_effect, "crash_at_effect"), say(pause, "pause"), say(cut, "cut"),
      say(lossy, "lossy");
  say(coord_faults, "coord_faults"), say(coord_outage, "coord_outage"), say(clocks, "clocks"),
      say(fail_sync, "fail_sync"), say(full, "full");
  say(slow_disk, "slow_disk"), say(split, "split"), say(merge, "merge"), say(replace, "replace"),
      say(lose_server, "lose_server"), say(wipe, "wipe"), say(abort, "abort");
  say(operators_die, "operators_die"), say(tables, "tables"), say(flip, "flip"),
      say(small_retention, "small_retention");
  return out;
}

PushWorld::PushWorld(uint64_t seed, bool merges) : cluster_(seed) {
  if (seed % 2 == 0) cluster_.engine.spill_from = 0;  // every value is left in the journal until it is applied
  cluster_.engine.spill_value = 1;
  auto& random = cluster_.scheduler.random();
  chaos_ = merges ? Chaos::draw_merges(random) : Chaos::draw(random);
  load_ = draw_load(random);
}

PushWorld::PushWorld(uint64_t seed, const Chaos& chaos, const Load& load)
    : cluster_(seed), chaos_(chaos), load_(load) {}

PushWorld::~PushWorld() = default;

void PushWorld::set_up() {
  auto& random = cluster_.scheduler.random();
  cluster_.scheduler.note("chaos", chaos_.text());
  cluster_.engine.segment_bytes = 64 << 10;
  cluster_.engine.overlay_bytes = 256 << 10;
  cluster_.engine.overlay_age = 300ms;
  cluster_.engine.slice_bytes = 16 << 10;
  cluster_.engine.checkpoint_interval = 1s;
  cluster_.engine.trash_time = 1s;
  cluster_.engine.retention_bytes = chaos_.small_retention ? 64 << 10 : 4 << 20;
  cluster_.engine.reserve_bytes = 256 << 10;
  cluster_.watchers.violation = [this](const std::string& text) { checks_.fail(text); };
  cluster_.watchers.dropping = [this](Host& h, const store::TenureId& id, const std::string& why) {
    checks_.dropping(h, id, why);
  };
  cluster_.watchers.partd_dying = [this](Host& h) { checks_.dying(h); };
  cluster_.watchers.recovered = [this](Host& h, const auto& report) { checks_.recovered(h, report); };
  cluster_.watchers.told = [this](const Write& w) { checks_.told(w); };
  cluster_.maps.on_commit(
      [this](const model::Metadata* before, const model::Metadata& after) { checks_.committed(before, after); });

  cluster_.network.never_double([](const std::any& m) {
    return m.type() == typeid(model::PutRequest) || m.type() == typeid(model::DeleteRequest) ||
           m.type() == typeid(model::BatchRequest);
  });

  if (chaos_.flip) checks_.set_damage_expected(true);
  std::vector<model::ServerId> servers;
  for (size_t i = 1; i <= chaos_.servers; ++i) {
    Host& h = cluster_.add_host("p" + std::to_string(i));
    if (chaos_.clocks) {
      h.clock->drift = (static_cast<double>(random.below(2001)) - 1000.0) * 1e-6;
      h.clock->wall_offset_ms = static_cast<int64_t>(random.below(2000)) - 1000;
    }
    if (i <= chaos_.replicas) servers.push_back(h.id);
  }
  cluster_.maps.create_table("t", first_partitions(servers), chaos_.replicas);
  for (auto& [name, h] : cluster_.hosts) {
    cluster_.start_partd(*h);
    cluster_.start_push(*h);
  }
  chores();
  for (size_t i = 1; i <= 2; ++i) {
    operators_.push_back(std::make_unique<Operator>(cluster_, "o" + std::to_string(i)));
    operators_.back()->start();
  }
  for (size_t i = 1; i <= chaos_.clients; ++i)
    clients_.push_back(std::make_unique<Client>(cluster_, history_, "c" + std::to_string(i), load_));
}

std::vector<model::ops::NewPartition> PushWorld::first_partitions(const std::vector<model::ServerId>& servers) {
  auto& random = cluster_.scheduler.random();
  std::set<std::string> points;
  for (uint64_t n = chaos_.merge ? random.below(4) : 0; n > 0; --n)
    points.insert(Client::key(random.below(load_.keys)));
  std::vector<model::ops::NewPartition> all(1);
  for (const auto& point : points) {
    all.back().interval.end = point;
    all.emplace_back().interval.begin = point;
  }
  for (auto& p : all) {
    p.id = model::PartitionId::draw(random);
    for (const auto& s : servers) p.assignments.push_back({s, model::AssignmentId::draw(random)});
  }
  return all;
}

bool PushWorld::wait(const std::function<bool()>& done, Duration within) {
  return cluster_.scheduler.run_until(done, cluster_.scheduler.now() + within);
}

Verdict PushWorld::run() {
  set_up();
  if (!wait([this] { return restless().empty(); }, 40s)) {
    if (checks_.violation().empty()) checks_.fail("the cluster does not come up: " + restless());
    return verdict();
  }
  for (auto& c : clients_) c->start();
  sweep_planned();
  plan_strike();
  cluster_.scheduler.run_for(chaos_.lasts);
  stop_faults();
  finish();
  return verdict();
}

void PushWorld::finish() {
  if (!checks_.violation().empty()) return;
  if (!come_to_rest(kRestWithin)) {
    if (checks_.violation().empty())
      checks_.fail("not at rest " + std::to_string(kRestWithin / 1s) + " s after the faults stopped: " + restless());
    return;
  }
  probe();
  if (!checks_.violation().empty()) return;
  if (!come_to_rest(kRestWithin)) {
    if (checks_.violation().empty()) checks_.fail("not at rest after the probe: " + restless());
    return;
  }
  checks_.sweep();
  checks_.end();
}

std::string PushWorld::describe() const {
  std::string out;
  const auto id = [](const auto& i) { return to_string(i).substr(0, 8); };
  for (const auto& table : cluster_.maps.tables()) {
    const MapPtr map = cluster_.maps.current(table);
    out += "map of " + table + " at " + to_string(map->txnseq) + (map->dropped ? " dropped" : "") + "\n";
    for (const auto& p : map->partitions) {
      out += "  region " + to_string(p.region) + " " + id(p.id) + " " + to_string(p.interval) + " min " +
             to_string(p.min_txnseq) + ":";
      for (const auto& a : p.assignments)
        out += " " + a.server.name + "/" + std::to_string(a.slot) + "=" + id(a.id) + "(" +
               std::to_string(static_cast<int>(a.state)) + ")";
      for (const auto* child : {p.split ? &p.split->low : nullptr, p.split ? &p.split->high : nullptr}) {
        if (!child) continue;
        out += "\n    child " + id(child->id);
        for (const auto& a : child->assignments)
          out += " " + a.server.name + "=" + id(a.id) + "(" + std::to_string(static_cast<int>(a.state)) + ")" +
                 (a.source.none() ? "" : "s");
      }
      out += "\n";
    }
    for (const auto& e : map->ended) out += "  ended " + id(e.id) + " at " + to_string(e.at) + "\n";
  }
  for (const auto& [name, h] : cluster_.hosts) {
    out += name + (h->gone ? " gone" : h->partd.alive() ? "" : " dead") + "\n";
    auto* engine = h->partd_node ? h->partd_node->engine() : nullptr;
    if (!engine) continue;
    for (const auto& t : engine->tenures()) {
      const auto end = engine->log_end(t.id.partition), durable = engine->durable(t.id.partition);
      out += "  tenure " + id(t.id.partition) + " " + id(t.id.assignment) + " state " +
             std::to_string(static_cast<int>(t.state)) + " " + to_string(t.interval) + " applied " +
             to_string(t.applied.lsn) + " start " + to_string(t.log_start.lsn) +
             (end ? " end " + to_string(end->lsn) : "") + (durable ? " durable " + to_string(durable->lsn) : "") +
             (t.whole ? "" : " not whole") + "\n";
    }
    if (h->partd_node->machine())
      for (const auto& c : h->partd_node->machine()->copies())
        out += "  copy " + id(c.copy.partition) + " " + id(c.copy.assignment) + " " + c.role + " " + c.state + "\n";
    if (!h->push_node) continue;
    for (const auto& s : h->push_node->mover().streams(h->push.now()))
      out += "  stream " + id(s.target.id.own) + " to " + s.target.server.name + " " + id(s.target.id.target) + " at " +
             to_string(s.mark.at.lsn) + " of " + to_string(s.log.end.lsn) + " " + s.state + " " + s.why + "\n";
    for (const auto& p : h->push_node->mover().proofs())
      out += "  proof " + id(p.held.assignment) + " " + p.state + " " + p.why + "\n";
  }
  return out;
}

Verdict PushWorld::verdict() const {
  if (cluster_.scheduler.tracing() && !checks_.violation().empty()) std::fprintf(stderr, "%s", describe().c_str());
  return {cluster_.scheduler.trace_hash(), cluster_.scheduler.events(), checks_.violation()};
}

// After the faults a write at level `all` goes through everywhere, within a bound.
void PushWorld::probe() {
  struct Left {
    size_t n = 0;
    std::string refused;
  };
  const auto left = std::make_shared<Left>();
  const Instant deadline = cluster_.scheduler.now() + kProbeWithin;
  for (const auto& table : cluster_.maps.tables()) {
    const MapPtr map = cluster_.maps.current(table);
    if (map->dropped) continue;
    for (const auto& p : map->partitions) {
      ++left->n;
      const std::string key = p.interval.begin.empty() ? "0probe" : p.interval.begin;
      const std::string to = p.assignments[0].server.name;
      const auto attempt = [this, left, table, key, to, deadline](auto self) -> void {
        clients_[0]->put(to, table, key, model::Level::all,
                         [this, left, key, deadline, self](const base::Result<model::WriteReply>& r) {
                           if (r) {
                             --left->n;
                           } else {
                             left->refused = key + ": " + to_string(r.error());
                             if (cluster_.scheduler.now() < deadline)
                               cluster_.scheduler.after(200ms, [self] { self(self); });
                           }
                         });
      };
      attempt(attempt);
    }
  }
  if (!wait([&] { return left->n == 0; }, kProbeWithin))
    checks_.fail("at rest, and yet a write at level all is not taken: " + left->refused);
}

bool PushWorld::come_to_rest(Duration within) {
  const Instant deadline = cluster_.scheduler.now() + within;
  // Looked at now and then: a look at everything after each event would cost more than the events.
  while (cluster_.scheduler.now() < deadline && checks_.violation().empty()) {
    if (restless().empty()) return true;
    cluster_.scheduler.run_for(200ms);
  }
  return false;
}

std::string PushWorld::restless() const {
  for (const auto& c : clients_)
    if (c->waiting() > 0) return "a client waits for an answer";
  for (const auto& table : cluster_.maps.tables()) {
    const MapPtr map = cluster_.maps.current(table);
    if (map->dropped) continue;
    for (const auto& p : map->partitions) {
      if (being_reshaped(p) || !p.moves.empty())
        return "an operation on region " + std::to_string(p.region.value) + " of " + table + " has not ended";
      for (const auto& a : p.assignments)
        if (a.state != model::AssignmentState::available)
          return a.server.name + " is not filled with region " + std::to_string(p.region.value) + " of " + table;
    }
  }
  for (const auto& [name, h] : cluster_.hosts) {
    if (h->gone) continue;
    if (!h->partd_node || !h->partd_node->serving()) return name + " does not serve";
    for (const auto& table : cluster_.maps.tables()) {
      const auto settled = h->partd_node->machine()->settled(table);
      if (!settled || settled->txnseq != cluster_.maps.current(table)->txnseq)
        return name + " has not settled the map of " + table;
    }
    if (const auto why = h->partd_node->machine()->read_only_reason(); !why.empty())
      return name + " takes no writes: " + why;
    if (!h->partd_node->machine()->caught_up()) return name + " has not caught up";
    if (h->partd_node->unanswered() > 0) return name + " has not answered everybody";
    if (!h->push_node) return name + " has no mover";
    if (!h->push_node->all_done()) return name + "'s mover: " + h->push_node->why(h->push.now());
  }
  return "";
}

void PushWorld::sweep_planned() {
  cluster_.scheduler.after(kSweepEvery, [this] {
    if (calm_) return;
    checks_.sweep();
    sweep_planned();
  });
}

Verdict run_push_merges(uint64_t seed) { return PushWorld(seed, true).run(); }
Verdict run_push_world(uint64_t seed) { return PushWorld(seed).run(); }

}  // namespace cantle::sim
