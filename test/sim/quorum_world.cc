#include "test/sim/quorum_world.h"

#include <algorithm>
#include <utility>

#include "lib/base/check.h"
#include "test/sim/quorum_node.h"

namespace cantle::sim {

namespace {
constexpr Duration kSettles = 14s;          // a leader that resigned rests for 5 s, sessions take 2 s to expire
constexpr Duration kCopiesWithin = 1500ms;  // what was sent last is answered by then

// A bit of the last block, or of the one before it: what perhaps only the live page knows.
bool flip_before(QuorumHost& host, Process& by, const store::JournalPosition& end, base::Random& random) {
  SimDisk disk(host.medium, by);
  const auto file = disk.open(store::segment_path(end.segment), store::OpenMode::write);
  const uint64_t back = 1 + random.below(300);
  if (!file || end.offset < back) return false;
  auto byte = (*file)->read(end.offset - back, 1);
  if (!byte || byte->size() != 1) return false;
  byte->front() = static_cast<char>(byte->front() ^ (1 << random.below(8)));
  return (*file)->write(end.offset - back, *byte) && (*file)->sync();
}

}  // namespace

QuorumChaos QuorumChaos::draw(base::Random& random) {
  QuorumChaos c;
  const auto some = [&](double p) { return random.chance(p); };
  c.kill = some(0.5), c.power = some(0.4), c.crash_at_effect = some(0.4), c.pause = some(0.4), c.cut = some(0.5);
  c.lossy = some(0.5), c.coord_faults = some(0.4), c.coord_outage = some(0.3), c.fail_sync = some(0.15);
  c.slow_disk = some(0.3), c.resign = some(0.3), c.refuse_block = some(0.2);
  c.small_store = some(0.25);
  constexpr size_t kServers[] = {3, 3, 3, 5, 3, 3, 5, 1};
  c.servers = kServers[random.below(8)];
  c.partitions = 1 + random.below(2);
  c.clients = 2 + random.below(4);
  c.keys = 2 + random.below(6);
  c.moves = some(0.5);
  c.spares = c.moves ? 1 + random.below(2) : 0;
  c.pipeline = some(0.6) ? proto::quorum::Pipeline::chain : proto::quorum::Pipeline::star;
  c.forgets = some(0.4);
  c.flip = some(0.2) && c.servers > 1 && !c.power;  // see flip()
  return c;
}

QuorumChaos QuorumChaos::draw_splits(base::Random& random) {
  auto c = draw(random);
  c.splits = true;
  c.moves = false;
  c.spares = 0;
  c.lasts = 8s;
  return c;
}

// Twice as many merges as splits, or there would soon be nothing to merge.
QuorumChaos QuorumChaos::draw_merges(base::Random& random) {
  auto c = draw_splits(random);
  c.merges = true;
  c.splits = random.chance(0.7);
  c.points = {"k1", "n", "s"};
  if (random.chance(0.3)) {
    c.moves = true;
    c.spares = 1;
  }
  return c;
}

// Whoever falls behind a split may be replaced before it is filled, be damaged, or be one of three that vote where one
// did.
QuorumChaos QuorumChaos::draw_splits_and_moves(base::Random& random) {
  auto c = draw_merges(random);
  c.splits = c.moves = true;
  c.merges = random.chance(0.4);
  if (!c.merges) c.points.clear();
  c.spares = 1 + random.below(2);
  c.servers = 3;
  c.partitions = 1;
  c.kill = true;
  const auto special = random.below(3);
  c.flip = special == 0;
  c.recoveries = special == 1;
  if (c.flip) c.power = false;  // see flip()
  return c;
}

// The same with one, three or five voters, with two tables, and with disks that are lost for good.
QuorumChaos QuorumChaos::draw_everything(base::Random& random) {
  auto c = draw_splits_and_moves(random);
  constexpr size_t kServers[] = {3, 3, 3, 5, 3, 3, 1};
  c.servers = kServers[random.below(7)];
  c.partitions = random.chance(0.8) ? 1 : 2;
  c.flip = c.flip && c.servers > 1;
  c.losses = !c.flip && !c.recoveries && c.servers > 1 && random.chance(0.8);
  return c;
}

QuorumHost::QuorumHost(Scheduler& scheduler, const std::string& name)
    : id{name},
      clock(std::make_shared<HostClock>()),
      medium(scheduler, name),
      process(scheduler, name, "partd", clock) {
  process.kill();
}
QuorumHost::~QuorumHost() = default;

QuorumWorld::QuorumWorld(uint64_t seed, const QuorumChaos& chaos)
    : scheduler(seed),
      network(scheduler),
      coord(scheduler),
      ledger(chaos.partitions),
      chaos_(chaos),
      random_(seed * 1409 + 11),
      operator_(scheduler, "o1", "driver") {
  engine.segment_bytes = 64 << 10;
  engine.overlay_bytes = 256 << 10;
  engine.overlay_age = 300ms;
  engine.checkpoint_interval = 700ms;
  engine.reserve_bytes = 256 << 10;
  engine.retention_bytes = 64 << 20;
  if (chaos_.forgets) {
    engine.segment_bytes = 16 << 10;
    engine.retention_bytes = 1;
  }
  if (chaos_.small_store) engine.overlay_bytes = 6 << 10;
  coord.faults().session_timeout = 2s;
  // No transport doubles a request. Copies come from those who send again, and know it: send_copies().
  network.never_double([](const std::any& request) { return request.type() == typeid(QuorumWrite); });
  cluster = model::ClusterUuid::draw(random_);
  for (const auto& dir : layout.skeleton()) coord.put(dir, "");
  for (size_t i = 0; i < chaos_.servers + chaos_.spares; ++i) {
    hosts.push_back(std::make_unique<QuorumHost>(scheduler, "p" + std::to_string(i + 1)));
    auto& host = *hosts.back();
    host.clock->drift = (static_cast<double>(random_.below(2001)) - 1000.0) * 1e-6;  // as far as the lease allows for
    host.medium.on_power_loss([this, &host] { power_cut(host); });
    host.process.on_death([this, &host] {
      scheduler.after(0ns, [&host, life = host.process.life()] {
        if (!host.process.alive() && host.process.life() == life) host.node.reset();
      });
    });
  }
  for (size_t p = 0; p < chaos_.partitions; ++p) {
    for (const auto& dir : layout.table_skeleton(distribution(p))) coord.put(dir, "");
    model::ops::CreateTable create;
    create.name = table_name(p);
    create.table = model::TableUuid::draw(random_);
    create.replication = model::Replication::quorum;
    create.replicas = static_cast<uint32_t>(chaos_.servers);
    if (chaos_.pipeline == proto::quorum::Pipeline::star) create.options["pipeline"] = "star";
    std::string begin;
    for (size_t n = 0; n <= chaos_.points.size(); ++n) {
      const auto end = n < chaos_.points.size() ? chaos_.points[n] : "";
      model::ops::NewPartition one{model::PartitionId::draw(random_), {std::exchange(begin, end), end}, {}};
      for (size_t i = 0; i < chaos_.servers; ++i)
        one.assignments.push_back({hosts[i]->id, model::AssignmentId::draw(random_)});
      create.partitions.push_back(std::move(one));
    }
    maps_.emplace_back();
    past_.emplace_back();
    CHECK(commit(p, create));
  }
  operator_session_ = coord.open(operator_);
  if (chaos_.moves) plan_drive();
  scheduler.after_each([this] {
    check();
    if (!violation_.empty()) scheduler.stop();
  });
}

QuorumWorld::~QuorumWorld() = default;

void QuorumWorld::violation(const std::string& text) {
  if (violation_.empty())
    violation_ = text + " (at " + std::to_string(base::to_ms(scheduler.now().since_boot)) + " ms)";
}

std::optional<size_t> QuorumWorld::find(const model::TableUuid& table) const {
  const auto it = std::find_if(maps_.begin(), maps_.end(), [&](const auto& m) { return m->table == table; });
  return it == maps_.end() ? std::nullopt : std::optional<size_t>(it - maps_.begin());
}

void QuorumWorld::start(QuorumHost& host) {
  if (host.process.alive() || &host == lost_) return;
  host.node.reset();
  ++host.starts;
  host.process.restart();
  host.node = std::make_unique<QuorumNode>(*this, host);
  for (size_t p = 0; p < maps_.size(); ++p) tell(host, p);
  // Whoever was connected to the life before hears that it is over.
  for (auto& other : hosts) {
    if (other.get() == &host || !other->process.alive() || !other->node) continue;
    scheduler.after(some(50ms), [&host, o = other.get(), life = other->process.life()] {
      if (o->process.alive() && o->process.life() == life && o->node) o->node->link_lost(host.id);
    });
  }
}

void QuorumWorld::power_cut(QuorumHost& host) {
  host.process.kill();
  scheduler.after(1ns, [&host] {
    if (!host.process.alive()) host.medium.power_cut();
  });
}

void QuorumWorld::wipe(QuorumHost& host) {
  kill(host);
  host.node.reset();
  host.medium.wipe();
  host.index.clear();
  host.seen.clear();
  ++host.wipes;
}

std::string QuorumWorld::describe() const {
  std::string out;
  for (const auto& host : hosts) {
    out += "\n  " + host->id.name;
    if (!host->process.alive() || !host->node) {
      out += " is dead";
      continue;
    }
    host->node->each_replica([&](const model::PartitionId& id, const proto::QuorumReplica& r) {
      const auto s = r.status();
      out += "; partition " + to_string(id).substr(0, 6) + ": " + std::string(s.role) + ", " + std::string(s.doing) +
             ", epoch " + to_string(s.epoch) + ", end " + to_string(s.end.epoch) + ":" + to_string(s.end.lsn) +
             ", commit " + to_string(s.commit) + (s.serving ? ", serving" : "") + (s.cut ? ", cut" : "");
      for (const auto& peer : s.peers)
        out += " [" + peer.hop.server.name + " " + std::to_string(static_cast<int>(peer.state)) + " acked " +
               to_string(peer.acked.lsn) + " " + peer.why + "]";
    });
  }
  return out;
}

// --- what must hold ----------------------------------------------------------------------------------

bool QuorumWorld::leased(QuorumHost& host, const model::PartitionId& partition) {
  if (!host.process.alive() || !host.node) return false;
  auto* r = host.node->replica(partition);
  return r != nullptr && r->may_read(host.process.now()).has_value();
}

QuorumHost* QuorumWorld::leader(const model::PartitionId& partition) {
  for (auto& host : hosts)
    if (leased(*host, partition)) return host.get();
  return nullptr;
}

bool QuorumWorld::at_rest(size_t p) {
  return std::all_of(maps_[p]->partitions.begin(), maps_[p]->partitions.end(), [&](const model::Partition& at) {
    return at.moves.empty() && !being_reshaped(at) && leader(at.id) != nullptr;
  });
}

void QuorumWorld::check() {
  std::pair<int64_t, uint64_t> newest{coord.zxid(), 0};
  for (const auto& map : maps_) newest.second += map->txnseq.value;
  if (std::exchange(electorates_at_, newest) != newest)
    for (size_t p = 0; p < maps_.size(); ++p) check_electorate(p);
  std::map<model::PartitionId, QuorumHost*> leading;
  for (auto& host : hosts) {
    if (!host->process.alive() || !host->node) continue;
    host->node->each_replica([&](const model::PartitionId& id, const proto::QuorumReplica& r) {
      if (!r.election().leads()) return;
      const auto [at, first] = leading.emplace(id, host.get());
      if (first || !leased(*host, id)) return;
      if (leased(*at->second, id))
        violation(at->second->id.name + " and " + host->id.name + " serve at the same time (S7)");
      at->second = host.get();
    });
  }
}

void QuorumWorld::check_electorate(size_t p) {
  for (const auto& at : maps_[p]->partitions) {
    const auto* text = coord.value(layout.government(distribution(p), at.region));
    if (text == nullptr || *text == electorate_checked_[at.id]) continue;
    electorate_checked_[at.id] = *text;
    const auto government = coord::parse_government(*text);
    if (!government) return violation("a government cannot be read");
    const bool some = recovered_.contains(at.id) && !government->voters.empty();
    if (government->voters.size() > chaos_.servers || (!some && government->voters.size() < chaos_.servers))
      violation("a government has too few voters, or too many");
    for (const auto& v : government->voters)
      if (find_assignment(at, v.assignment) == nullptr)
        violation(v.server.name + " votes, and METADATA does not know it (S61)");
  }
}

void QuorumWorld::committed(const QuorumHost& host, size_t partition, const model::PartitionId& id,
                            const model::LogPoint& point) {
  if (const auto fault = ledger.committed(partition, id, point)) violation(host.id.name + " " + *fault);
}

void QuorumWorld::acknowledged(const QuorumHost& host, size_t partition, const model::PartitionId& id, model::Lsn lsn) {
  const auto* e = model::find_ended(past_[partition], id);
  if (e != nullptr && e->cut && lsn > e->cut->at.lsn)
    violation(host.id.name + " acknowledges a write at LSN " + to_string(lsn) + " of a partition that ended at " +
              to_string(e->cut->at.lsn) + " (S43)");
}

// --- what goes wrong ---------------------------------------------------------------------------------

void QuorumWorld::set_up() {
  for (auto& host : hosts) start(*host);
  const bool ruled = wait(
      [this] {
        for (size_t p = 0; p < maps_.size(); ++p)
          if (!at_rest(p)) return false;
        return true;
      },
      8s);
  if (!ruled) violation("nobody was elected in a quiet world:" + describe());
}

void QuorumWorld::plan_strike() {
  scheduler.after(20ms + some(600ms), [this] {
    if (!striking_) return;
    strike();
    plan_strike();
  });
}

void QuorumWorld::strike() {
  const size_t p = random_.below(maps_.size());
  const auto map = maps_[p];
  const auto& at = map->partitions[random_.below(map->partitions.size())];
  auto* victim = hosts[random_.below(hosts.size())].get();
  if (auto* l = leader(at.id); l != nullptr && random_.chance(0.5)) victim = l;  // half of it hits a leader
  auto& other = *hosts[random_.below(hosts.size())];
  const auto revive = [this, victim] {
    scheduler.after(some(1500ms), [this, victim] {
      if (striking_) start(*victim);
    });
  };
  std::vector<Fn> strikes;
  if (chaos_.kill) strikes.emplace_back([&] { kill(*victim), revive(); });
  if (chaos_.power) {
    strikes.emplace_back([&] { power_cut(*victim), revive(); });
    if (random_.chance(0.1))  // all at once
      strikes.emplace_back([&] {
        for (auto& host : hosts) {
          power_cut(*host);
          scheduler.after(some(800ms), [this, h = host.get()] {
            if (striking_) start(*h);
          });
        }
      });
  }
  if (chaos_.crash_at_effect)
    strikes.emplace_back([&] {
      victim->process.arm_crash(1 + random_.below(40));
      revive();
    });
  if (chaos_.pause) strikes.emplace_back([&] { victim->process.pause(some(random_.chance(0.5) ? 300ms : 2s)); });
  if (chaos_.cut) {
    strikes.emplace_back([&] { network.cut(victim->id.name, other.id.name); });
    strikes.emplace_back([&] { network.cut_both(victim->id.name, other.id.name); });
    strikes.emplace_back([&] { network.cut(victim->id.name, "*"); });
    strikes.emplace_back([&] { network.cut("*", victim->id.name); });
    strikes.emplace_back([&] { network.heal(); });
  }
  if (chaos_.coord_faults) {
    strikes.emplace_back([&] { coord.expire(victim->id.name); });
    strikes.emplace_back([&] { coord.cut(victim->id.name); });
    strikes.emplace_back([&] { coord.heal(); });
  }
  if (chaos_.coord_outage) strikes.emplace_back([&] { coord.outage(some(3s)); });
  if (chaos_.fail_sync)
    strikes.emplace_back([&] { victim->medium.faults().fail_sync = random_.chance(0.3) ? 0.05 : 0; });
  if (chaos_.resign)
    strikes.emplace_back([&] {
      if (victim->process.alive() && victim->node)
        victim->node->resign(at.id, random_.chance(0.5) ? at.assignments[random_.below(at.assignments.size())].id
                                                        : model::AssignmentId{});
    });
  if (chaos_.flip) strikes.emplace_back([&] { flip(); });
  if (chaos_.losses && lost_ == nullptr) strikes.emplace_back([&] { lose(); });
  if (chaos_.recoveries && random_.chance(0.5))
    strikes.emplace_back([&] {
      if (!recover(p, at.id)) return;
      for (auto& host : hosts)
        scheduler.after(some(1500ms), [this, h = host.get()] {
          if (striking_) start(*h);
        });
    });
  // Somebody who is down comes up in the end, or nothing goes on.
  strikes.emplace_back([&] { start(*hosts[random_.below(hosts.size())]); });
  strikes[random_.below(strikes.size())]();
  if (chaos_.cut && random_.chance(0.3)) scheduler.after(some(1s), [this] { network.heal(), coord.heal(); });
}

// R16: a bit of a journal flips while its server is down. One at a time: what was damaged last is whole again. The
// power stays: of what was written last before it fails, nobody but the live page knows that it was durable.
void QuorumWorld::flip() {
  if (damaged_ != nullptr) {
    if (!damaged_->process.alive() || !damaged_->node) return;
    for (const auto& map : maps_)
      for (const auto& at : map->partitions) {
        if (find_assignment(at, damaged_->id) == nullptr) continue;
        const auto log = damaged_->node->engine().quorum_log(at.id);
        if (!log || !log->whole || damaged_->node->lags(at.id)) return;
      }
  }
  auto& host = *hosts[random_.below(hosts.size())];
  if (host.medium.faults().power_at_sync > 0) return;
  const bool at_end = host.process.alive() && host.node && random_.chance(0.4);
  const auto end = at_end ? host.node->engine().status().head : store::JournalPosition{};
  kill(host);
  damaged_ = &host;
  scheduler.after(1ms, [this, &host, end] {
    kill(host);  // not under the feet of whoever has started it meanwhile
    if (end.sequence == 0 || !flip_before(host, operator_, end, random_)) host.medium.flip_bit("journal/0");
    scheduler.after(some(1500ms), [this, &host] { start(host); });
  });
}

void QuorumWorld::stop_faults() {
  striking_ = false;
  network.faults() = {};
  coord.faults() = {};
  coord.faults().session_timeout = 2s;
  times.slow = 0;
  network.heal();
  coord.heal();
  for (auto& host : hosts) {
    host->process.arm_crash(0);
    host->medium.faults() = {};
    start(*host);
  }
}

Verdict QuorumWorld::run() {
  set_up();
  if (chaos_.lossy) {
    const auto often = [this](double most) {
      return random_.chance(0.5) ? most * static_cast<double>(random_.below(1000)) / 1000 : 0;
    };
    auto& net = network.faults();
    net.lose = often(0.03), net.lose_answer = often(0.03), net.late = often(0.02), net.duplicate = often(0.03);
    net.reorder = often(0.1), net.slow = often(0.1);
    net.slow_max = random_.chance(0.3) ? 400ms : 50ms;
  }
  if (chaos_.coord_faults) {
    auto& c = coord.faults();
    c.lose_request = c.lose_read = 0.03, c.lose_reply = 0.08, c.late_change = 0.03, c.lose_watch = 0.2;
    c.lag_spike = 0.05;
  }
  if (chaos_.slow_disk) times.slow = 0.02;
  start_clients();
  striking_ = true;
  plan_strike();
  if (chaos_.moves) plan_move();
  if (chaos_.splits) plan_split();
  if (chaos_.merges) plan_merge();
  scheduler.run_for(chaos_.lasts);
  finish();
  return verdict();
}

// --- the end -----------------------------------------------------------------------------------------

void QuorumWorld::finish() {
  if (!violation_.empty()) return;
  stop_faults();
  for (auto& host : hosts) wait([&] { return !host->process.paused(); }, 5s);
  // What dies of an earlier fault now comes back.
  const auto all_up = [this] {
    for (auto& host : hosts) start(*host);
    return true;
  };
  if (!wait([&] { return all_up() && lost_ == nullptr; }, 2 * kSettles))
    return violation("who lost its disk is not replaced everywhere:" + describe());
  for (size_t p = 0; p < maps_.size() && violation_.empty(); ++p)
    if (!wait([&] { return all_up() && at_rest(p); }, 2 * kSettles) && violation_.empty())
      violation("a partition is not led, or what was begun with it does not end, though the faults have stopped:" +
                describe());
  if (!violation_.empty()) return;
  if (!wait([&] { return all_vote(); }, kSettles))
    return violation("a partition does not get its voters back after a recovery:" + describe());
  // Clients get through, each with an answer that says ok.
  const auto from = operations_.size();
  const bool through = wait(
      [&] {
        all_up();
        size_t done = 0;
        for (size_t i = from; i < operations_.size(); ++i)
          done += operations_[i].outcome == linear::Outcome::ok && operations_[i].op != linear::Kind::get ? 1 : 0;
        return done >= 4 * chaos_.clients;
      },
      6s);
  if (!through) return violation("writes do not go through after the faults:" + describe());
  asking_ = false;
  scheduler.run_for(kCopiesWithin + 100ms);
  if (!wait([&] { return !left_behind(); }, kSettles)) return violation(*left_behind() + describe());
  for (size_t p = 0; p < maps_.size() && violation_.empty(); ++p) {
    std::vector<QuorumLedger::Leaf> leaves;
    const auto map = maps_[p];  // what ended may still be forgotten meanwhile
    for (const auto& leaf : map->partitions)
      if (violation_.empty()) compare(p, leaf, leaves);
    if (!violation_.empty()) return;
    if (const auto fault = ledger.check(p, leaves)) return violation("partition " + std::to_string(p) + ": " + *fault);
    if (const auto fault = sessions_.check(p, ledger.timelines(p)))
      return violation("partition " + std::to_string(p) + ": " + *fault);
    for (const auto& leaf : leaves)
      if (leaf.held != ledger.contents(p, leaf.id))
        return violation("other records of " + to_string(leaf.interval) + " are held than its log leads to");
  }
  if (violation_.empty()) check_history();
}

bool QuorumWorld::all_vote() const {
  for (size_t p = 0; p < maps_.size(); ++p)
    for (const auto& at : maps_[p]->partitions)
      if (government(p, at.region)->voters.size() < chaos_.servers) return false;
  return true;
}

// Every copy that is here is one that the map names, or says nothing of any more: that is kept, and told of.
std::optional<std::string> QuorumWorld::left_behind() const {
  for (const auto& host : hosts) {
    if (!host->process.alive() || !host->node) return host->id.name + " is dead";
    for (const auto& t : host->node->engine().tenures()) {
      const auto* at = maps_[*find(t.table)]->find(t.id.partition);
      if (at != nullptr && find_assignment(*at, t.id.assignment) != nullptr) continue;
      if (at == nullptr && find_ended(*maps_[*find(t.table)], t.id.partition) == nullptr) continue;
      return host->id.name + " keeps a copy of partition " + to_string(t.id.partition) +
             " for ever that METADATA does not name" + (t.state == store::TenureState::aside ? ", aside" : "");
    }
  }
  return std::nullopt;
}

// All replicas have the same log and the same records; but for those that have no log of it.
void QuorumWorld::compare(size_t p, const model::Partition& at, std::vector<QuorumLedger::Leaf>& leaves) {
  std::vector<QuorumHost*> having;
  const auto level = [&] {
    having.clear();
    for (auto& host : hosts) {
      if (find_assignment(at, host->id) == nullptr) continue;
      if (!host->process.alive() || !host->node || host->node->replica(at.id) == nullptr) return false;
      if (!host->node->lags(at.id)) having.push_back(host.get());
    }
    if (having.size() < model::majority(at.assignments.size())) return false;
    const auto& one = having.front()->node->replica(at.id)->log();
    return std::all_of(having.begin(), having.end(), [&](const auto* host) {
      const auto& log = host->node->replica(at.id)->log();
      return log.end() == one.end() && log.durable() == log.end() && log.commit() == log.end().lsn;
    });
  };
  if (!wait(level, 8s)) return violation("the replicas' logs do not become the same:" + describe());
  // Where the overlay was full, the index has to catch up first.
  const auto shown = [&] {
    return std::all_of(having.begin(), having.end(), [&](const auto* host) {
      const auto log = host->node ? host->node->engine().quorum_log(at.id) : std::nullopt;
      return log && log->visible == log->end.lsn;
    });
  };
  wait(shown, 5s);
  auto& first = *having.front();
  QuorumLedger::Leaf leaf{at.id, at.interval, first.node->replica(at.id)->log().end(), {}, {}};
  std::vector<model::PartitionId> made{at.id};
  for (size_t i = 0; i < made.size(); ++i) {
    auto parents = find_merged(past_[p], made[i]);
    if (const auto* e = find_parent(past_[p], made[i])) parents.push_back(e);
    for (const auto* e : parents) {
      leaf.ancestors.emplace_back(e->id, e->cut->at);
      made.push_back(e->id);
    }
  }
  std::vector<std::pair<std::string, std::string>> expected;
  for (auto* host : having) {
    std::vector<std::pair<std::string, std::string>> rows;
    store::ScanRange range;
    range.tombstones = true;
    range.records_max = 1000;
    auto& e = host->node->engine();
    const auto visible = e.quorum_log(at.id);
    if (!visible || visible->visible != visible->end.lsn)
      return violation(host->id.name + " does not show all that is committed");
    const auto end = e.scan(at.id, range, [&](std::string_view key, const store::Found& found) {
      if (host == &first && !found.deleted) leaf.held[std::string(key)] = {found.version, std::string(found.value)};
      rows.emplace_back(key,
                        std::string(found.version.view()) + (found.deleted ? "-" : "+") + std::string(found.value));
      return true;
    });
    if (!end || end->more) return violation(host->id.name + " cannot be read in the end");
    if (host == &first)
      expected = std::move(rows);
    else if (rows != expected)
      return violation(host->id.name + " holds other records than " + first.id.name + " in the end");
  }
  leaves.push_back(std::move(leaf));
}

}  // namespace cantle::sim
