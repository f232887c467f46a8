// What strikes a PushWorld.
#include <algorithm>

#include "lib/coord/layout.h"
#include "test/sim/partd.h"
#include "test/sim/push_world.h"
#include "test/sim/pusher.h"

namespace cantle::sim {

namespace {
constexpr uint64_t kDiskBytes = 64 << 20;  // far more than a run writes
constexpr Duration kChoresEvery = 700ms;
}  // namespace

void PushWorld::plan_strike() {
  cluster_.scheduler.after(cluster_.scheduler.between(chaos_.every_min, chaos_.every_max), [this] {
    if (calm_) return;
    strike();
    plan_strike();
  });
}

Host& PushWorld::any_host() {
  auto it = cluster_.hosts.begin();
  std::advance(it, static_cast<std::ptrdiff_t>(cluster_.scheduler.random().below(cluster_.hosts.size())));
  return *it->second;
}

Host* PushWorld::any_alive() {
  for (int i = 0; i < 8; ++i)
    if (Host& h = any_host(); h.partd.alive() && !h.gone) return &h;
  return nullptr;
}

void PushWorld::revive(Host& host, Duration after) {
  cluster_.scheduler.after(after, [this, &host] { cluster_.start_partd(host); });
}
void PushWorld::revive_push(Host& host, Duration after) {
  cluster_.scheduler.after(after, [this, &host] { cluster_.start_push(host); });
}

void PushWorld::strike() {
  auto all = strikes();
  // Whoever died by itself (a failed sync, an armed crash) is started again by its supervisor.
  for (auto& [name, h] : cluster_.hosts) {
    if (!h->partd.alive() && !h->gone && h->exit_text.empty() && cluster_.scheduler.random().chance(0.3))
      revive(*h, 1ms);
    if (!h->push.alive() && !h->gone && cluster_.scheduler.random().chance(0.3)) revive_push(*h, 1ms);
    if (!h->exit_text.empty() && !h->gone) lose(*h);
  }
  if (!all.empty()) all[cluster_.scheduler.random().below(all.size())]();
}

std::vector<Fn> PushWorld::strikes() {
  auto& s = cluster_.scheduler;
  auto& random = s.random();
  std::vector<Fn> all;
  const auto add = [&](bool on, Fn fn) {
    if (on) all.push_back(std::move(fn));
  };
  add(chaos_.kill, [&, this] {
    Host& h = any_host();
    if (random.chance(0.3)) {
      cluster_.kill_push(h);
      return revive_push(h, s.between(10ms, 2s));
    }
    cluster_.kill_partd(h);
    if (random.chance(0.3)) cluster_.kill_push(h);
    revive(h, s.between(10ms, 3s));
    revive_push(h, s.between(10ms, 3s));
  });
  add(chaos_.power, [&, this] {
    Host& h = any_host();
    // At any time, or in the middle of one of the next syncs.
    if (random.chance(0.5))
      cluster_.power_cut(h);
    else
      h.medium.faults().power_at_sync = 0.2;
    const Duration d = s.between(10ms, 3s);
    revive(h, d);
    revive_push(h, d);
    if (random.chance(0.7)) return;
    // Again, before much has been written over what the first left.
    s.after(d + s.between(1ms, 300ms), [this, &h] {
      if (!calm_) cluster_.power_cut(h);
    });
    revive(h, d + 500ms);
    revive_push(h, d + 500ms);
  });
  add(chaos_.crash_at_effect, [&, this] {
    Host& h = any_host();
    Process& p = random.chance(0.75) ? h.partd : h.push;
    if (p.alive()) p.arm_crash(1 + random.below(150));
  });
  add(chaos_.pause,
      [&, this] { (random.chance(0.8) ? any_host().partd : any_host().push).pause(s.between(50ms, 4s)); });
  add(chaos_.cut, [this] { random_cut(); });
  add(chaos_.cut, [this] { cluster_.network.heal(); });
  add(chaos_.lossy, [&, this] {
    auto& f = cluster_.network.faults();
    const double p = random.chance(0.3) ? 0 : static_cast<double>(random.below(8)) * 0.01;
    f.lose = p, f.lose_answer = p, f.late = p / 2, f.duplicate = p, f.reorder = p, f.slow = p * 3;
  });
  add(chaos_.coord_faults, [&, this] {
    auto& f = cluster_.coord.faults();
    const double p = random.chance(0.3) ? 0 : static_cast<double>(random.below(15)) * 0.01;
    f.lose_request = p, f.lose_reply = p, f.late_change = p, f.lose_read = p / 2, f.lose_watch = p * 2,
    f.delay_watch = p * 2, f.lag_spike = p;
  });
  add(chaos_.coord_faults, [this] { cluster_.coord.expire(any_host().id.name); });
  add(chaos_.coord_outage, [&, this] {
    if (random.chance(0.5)) return cluster_.coord.outage(s.between(200ms, 4s));
    const std::string name = any_host().id.name;
    cluster_.coord.cut(name);
    s.after(s.between(200ms, 4s), [this] { cluster_.coord.heal(); });
  });
  add(chaos_.clocks, [&, this] {
    Host& h = any_host();
    const auto by = static_cast<int64_t>(random.below(random.chance(0.5) ? 3000 : 20000));
    h.clock->wall_offset_ms += random.chance(0.5) ? by : -by;
    s.note("clock", h.id.name, h.clock->wall_offset_ms);
    if (random.chance(0.7)) s.after(s.between(100ms, 3s), [&h] { h.clock->wall_offset_ms = 0; });
  });
  add(chaos_.fail_sync, [&, this] {
    Host& h = any_host();
    h.medium.faults().fail_sync = 0.15;
    s.after(s.between(50ms, 500ms), [&h] { h.medium.faults().fail_sync = 0; });
  });
  add(chaos_.full, [&, this] {
    Host& h = any_host();
    h.medium.faults().bytes_max = 0;
    s.after(s.between(100ms, 2s), [&h] { h.medium.faults().bytes_max = kDiskBytes; });
  });
  add(chaos_.slow_disk, [&, this] { cluster_.times.slow = random.chance(0.5) ? 0 : 0.05; });
  add(chaos_.split, [this] { random_split(); });
  for (int twice = 0; twice < 2; ++twice) add(chaos_.merge, [this] { random_merge(); });
  add(chaos_.replace, [this] { random_replace(false, nullptr); });
  add(chaos_.lose_server && lost_ == 0, [&, this] {
    if (random.chance(0.3)) lose(any_host());
  });
  add(chaos_.wipe && lost_ == 0, [&, this] {
    Host& h = any_host();
    if (!random.chance(0.3) || h.gone) return;
    // A new disk under the old name: it must notice (S6).
    ++lost_;
    cluster_.kill_partd(h);
    cluster_.kill_push(h);
    s.after(1ms, [this, &h] {
      // Started meanwhile by whoever else meant to: not under its feet.
      cluster_.kill_partd(h);
      cluster_.kill_push(h);
      cluster_.wipe(h);
      revive(h, 50ms);
    });
  });
  add(chaos_.abort, [&, this] {
    for (auto& table : cluster_.maps.tables())
      for (const auto& p : cluster_.maps.current(table)->partitions) {
        if (p.merge && random.chance(0.5)) return operators_[random.below(operators_.size())]->abort(p.merge->attempt);
        if (p.split && random.chance(0.5)) return operators_[random.below(operators_.size())]->abort(p.split->attempt);
        if (!p.moves.empty() && random.chance(0.5))
          return operators_[random.below(operators_.size())]->abort(p.moves[0].attempt);
      }
  });
  add(chaos_.operators_die, [&, this] {
    auto& o = *operators_[random.below(operators_.size())];
    o.kill();
    s.after(s.between(100ms, 2s), [&o] {
      if (!o.alive()) o.start();
    });
  });
  add(chaos_.tables, [this] { random_table(); });
  add(chaos_.flip, [this] { flip(); });
  return all;
}

void PushWorld::random_cut() {
  auto& random = cluster_.scheduler.random();
  const std::string a = any_host().id.name, b = any_host().id.name;
  switch (random.below(4)) {
    case 0: return cluster_.network.cut(a, b);
    case 1: return cluster_.network.cut_both(a, b);
    case 2: cluster_.network.cut("*", a); return cluster_.network.cut(a, "*");
    default: return cluster_.network.cut(random.chance(0.5) ? "*" : a, random.chance(0.5) ? a : "m1");
  }
}

void PushWorld::random_split() {
  auto& random = cluster_.scheduler.random();
  const auto tables = cluster_.maps.tables();
  const MapPtr map = cluster_.maps.current(tables[random.below(tables.size())]);
  if (map->dropped || map->partitions.size() > 6) return;
  const auto& p = map->partitions[random.below(map->partitions.size())];
  const std::string point = Client::key(random.below(load_.keys));
  if (!p.interval.contains(point) || point == p.interval.begin) return;
  const auto servers = [&]() -> std::vector<model::ServerId> {
    if (random.chance(0.5)) return {};
    std::vector<model::ServerId> all, some;
    for (auto& [name, h] : cluster_.hosts)
      if (!h->gone) all.push_back(h->id);
    if (all.size() < map->replicas) return {};
    while (some.size() < map->replicas) {
      const size_t i = random.below(all.size());
      some.push_back(all[i]);
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return some;
  };
  const auto low = servers(), high = servers();
  operators_[random.below(operators_.size())]->split(map->name, p.region, point, low, high);
}

void PushWorld::random_merge() {
  auto& random = cluster_.scheduler.random();
  const auto tables = cluster_.maps.tables();
  const MapPtr map = cluster_.maps.current(tables[random.below(tables.size())]);
  if (map->dropped) return;
  const auto& p = map->partitions[random.below(map->partitions.size())];
  operators_[random.below(operators_.size())]->merge(map->name, p.region);
}

void PushWorld::random_replace(bool from_dead, Host* lost) {
  auto& random = cluster_.scheduler.random();
  const auto tables = cluster_.maps.tables();
  const MapPtr map = cluster_.maps.current(tables[random.below(tables.size())]);
  if (map->dropped) return;
  const auto& p = map->partitions[random.below(map->partitions.size())];
  const auto& from = p.assignments[random.below(p.assignments.size())].server;
  Host& to = any_host();
  if (to.gone || model::find_assignment(p, to.id)) return;
  operators_[random.below(operators_.size())]->replace(map->name, p.region, lost ? lost->id.name : from.name,
                                                       to.id.name, from_dead);
}

// A server is gone for good: an operator replaces it wherever it is assigned, again and again until it is nowhere.
void PushWorld::lose(Host& host) {
  if (host.gone) return;
  cluster_.scheduler.note("lost", host.id.name);
  host.gone = true;
  ++lost_;
  cluster_.kill_partd(host);
  cluster_.kill_push(host);
  replace_all(host);
}

void PushWorld::replace_all(Host& lost) {
  auto& random = cluster_.scheduler.random();
  for (const auto& table : cluster_.maps.tables()) {
    const MapPtr map = cluster_.maps.current(table);
    if (map->dropped) continue;
    for (const auto& p : map->partitions) {
      // What was begun with the lost server as its target cannot end: undone first (S60).
      for (const auto& move : p.moves)
        if (const auto* to = model::find_assignment(p, move.to); to && to->server == lost.id)
          for (auto& o : operators_) o->abort(move.attempt);
      const auto* a = model::find_assignment(p, lost.id);
      if (a && p.merge)
        for (auto& o : operators_) o->abort(p.merge->attempt);
      if (!a || being_reshaped(p) || !p.moves.empty()) continue;
      for (int i = 0; i < 8; ++i) {
        Host& to = any_host();
        if (to.gone || model::find_assignment(p, to.id)) continue;
        operators_[random.below(operators_.size())]->replace(table, p.region, lost.id.name, to.id.name, true);
        break;
      }
    }
  }
  cluster_.scheduler.after(500ms, [this, &lost] { replace_all(lost); });
}

// What metadata servers do by themselves, and what an operator does once a lost server is nowhere any more: ended
// partitions are forgotten when everybody has seen their end (lib/meta/chores.cc).
void PushWorld::chores() {
  cluster_.scheduler.after(kChoresEvery, [this] { chores(); });
  for (const auto& table : cluster_.maps.tables()) {
    MapPtr map = cluster_.maps.current(table);
    if (map->dropped) continue;
    const auto change = [&](model::Operation op) {
      return cluster_.maps.change({table, model::ChangeId::draw(cluster_.scheduler.random()), {std::move(op)}})
          .has_value();
    };
    for (const auto& [name, h] : cluster_.hosts) {
      const auto waits_for = [&, id = h->id](const model::EndedPartition& e) {
        return std::any_of(e.parent_assignments.begin(), e.parent_assignments.end(),
                           [&](const auto& a) { return a.server == id; });
      };
      if (h->gone && std::any_of(map->ended.begin(), map->ended.end(), waits_for))
        if (change(model::ops::RemoveDead{h->id})) return;
    }
    const auto d = coord::distribution(model::Keyspace::range, table);
    for (const auto& e : map->ended) {
      const bool seen = std::all_of(e.parent_assignments.begin(), e.parent_assignments.end(), [&](const auto& a) {
        const auto* text = cluster_.coord.value(cluster_.maps.layout().observed(d, a.server));
        const auto observed = text ? coord::parse_observed(*text) : base::fail(base::Code::not_found, "");
        return observed && observed->txnseq >= e.at;
      });
      if (seen && change(model::ops::SweepEnded{e.id, e.attempt})) break;
    }
  }
}

// A bit of a journal flips while its server is down. One copy at a time: the last one must be whole again.
void PushWorld::flip() {
  if (damaged_ != nullptr) {
    auto* engine = damaged_->partd_node ? damaged_->partd_node->engine() : nullptr;
    if (engine == nullptr || !damaged_->partd_node->serving()) return;
    for (const auto& t : engine->tenures())
      if (!t.whole) return;
  }
  Host& h = any_host();
  if (h.gone || h.medium.faults().power_at_sync > 0) return;
  cluster_.kill_partd(h);
  cluster_.kill_push(h);
  damaged_ = &h;
  auto& s = cluster_.scheduler;
  s.after(1ms, [this, &h] {
    // Started meanwhile by whoever else meant to: not under its feet.
    cluster_.kill_partd(h);
    cluster_.kill_push(h);
    h.medium.flip_bit("journal/0");
  });
  const Duration d = s.between(10ms, 2s);
  revive(h, d);
  revive_push(h, d);
}

void PushWorld::random_table() {
  auto& random = cluster_.scheduler.random();
  const MapPtr extra = cluster_.maps.current("extra");
  if (!extra) {
    std::vector<model::ops::NewPartition> parts(1);
    parts[0].id = model::PartitionId::draw(random);
    for (auto& [name, h] : cluster_.hosts)
      if (!h->gone && parts[0].assignments.size() < chaos_.replicas)
        parts[0].assignments.push_back({h->id, model::AssignmentId::draw(random)});
    if (parts[0].assignments.size() < chaos_.replicas) return;
    cluster_.maps.create_table("extra", parts, chaos_.replicas);
    load_.tables = {"t", "extra"};
    return;
  }
  if (extra->dropped || !random.chance(0.4)) return;
  load_.tables = {"t"};
  model::ops::DropTable drop;
  drop.accept_loss = true;
  (void)cluster_.maps.change({"extra", model::ChangeId::draw(random), {drop}});
}

void PushWorld::stop_faults() {
  calm_ = true;
  auto& s = cluster_.scheduler;
  s.note("calm");
  for (auto& c : clients_) c->stop();
  cluster_.network.faults() = {};
  cluster_.network.heal();
  const bool close_at_death = cluster_.coord.faults().close_at_death;
  cluster_.coord.faults() = {};
  cluster_.coord.faults().close_at_death = close_at_death;
  cluster_.coord.heal();
  cluster_.times = {};
  for (auto& [name, h] : cluster_.hosts) {
    h->partd.arm_crash(0);
    h->push.arm_crash(0);
    h->medium.faults().fail_sync = h->medium.faults().power_at_sync = 0;
    h->medium.faults().bytes_max = kDiskBytes;
    h->clock->wall_offset_ms = 0;
  }
  for (auto& o : operators_)
    if (!o->alive()) o->start();
  // Supervisors start what is dead, now and whenever it dies again; who must not start is replaced.
  const auto supervise = [this](auto self) -> void {
    for (auto& [name, h] : cluster_.hosts) {
      if (!h->exit_text.empty() && !h->gone) lose(*h);
      if (!h->gone && !h->partd.alive()) cluster_.start_partd(*h);
      if (!h->gone && !h->push.alive()) cluster_.start_push(*h);
    }
    cluster_.scheduler.after(200ms, [self] { self(self); });
  };
  supervise(supervise);
}

}  // namespace cantle::sim
