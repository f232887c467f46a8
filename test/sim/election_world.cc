#include "test/sim/election_world.h"

#include <algorithm>
#include <tuple>

#include "test/sim/election_node.h"

namespace cantle::sim {

namespace {
constexpr Duration kSettles = 12s;  // a leader that resigned rests for 5 s, sessions take 2 s to expire
}

ElectionHost::ElectionHost(Scheduler& scheduler, const std::string& name)
    : id{name}, process(scheduler, name, "partd") {
  process.kill();
}
ElectionHost::~ElectionHost() = default;

ElectionWorld::ElectionWorld(uint64_t seed, ElectionOptions options)
    : scheduler_(seed), network_(scheduler_), coord_(scheduler_), options_(options), random_(seed * 977 + 5) {
  coord_.faults().session_timeout = options_.session_timeout;
  for (const auto& dir : layout_.skeleton()) coord_.put(dir, "");
  for (const auto& dir : layout_.table_skeleton(kDistribution)) coord_.put(dir, "");
  for (size_t i = 0; i < options_.servers; ++i) {
    hosts_.push_back(std::make_unique<ElectionHost>(scheduler_, "p" + std::to_string(i + 1)));
    auto& host = *hosts_.back();
    host.copies.resize(options_.partitions);
    // As far apart as the lease allows for.
    host.process.host_clock().drift = (static_cast<double>(random_.below(2001)) - 1000.0) * 1e-6;
    host.process.on_death([this, &host] {
      scheduler_.after(0ns, [&host, life = host.process.life()] {
        if (!host.process.alive() && host.process.life() == life) host.node.reset();
      });
    });
  }
  for (size_t p = 0; p < options_.partitions; ++p) {
    partitions_.push_back(model::PartitionId::draw(random_));
    model::Government g;
    g.epoch = {1};
    for (size_t i = 0; i < hosts_.size(); ++i)
      g.voters.push_back({static_cast<uint32_t>(i), hosts_[i]->id, model::AssignmentId::draw(random_)});
    g.writer = "m1";
    voters_.push_back(g.voters);
    coord_.put(layout_.government(kDistribution, region(p)), coord::government_text(g));
    coord_.put(layout_.quorums(kDistribution, region(p)), "");
  }
  histories_.resize(options_.partitions);
  led_.resize(options_.partitions);
  scheduler_.after_each([this] {
    check();
    if (!violation_.empty()) scheduler_.stop();
  });
}

ElectionWorld::~ElectionWorld() = default;

void ElectionWorld::violation(const std::string& text) {
  if (violation_.empty())
    violation_ = text + " (at " + std::to_string(base::to_ms(scheduler_.now().since_boot)) + " ms)";
}

Verdict ElectionWorld::verdict() { return {scheduler_.trace_hash(), scheduler_.events(), violation_}; }

void ElectionWorld::start(ElectionHost& host) {
  if (host.process.alive()) return;
  host.node.reset();
  ++host.starts;
  host.process.restart();
  host.node = std::make_unique<ElectionNode>(*this, host, network_, coord_);
}

std::optional<size_t> ElectionWorld::partition_of(const model::PartitionId& id) const {
  const auto it = std::find(partitions_.begin(), partitions_.end(), id);
  return it == partitions_.end() ? std::nullopt : std::optional<size_t>(it - partitions_.begin());
}

std::optional<model::Epoch> ElectionWorld::leads(const ElectionHost& host, size_t partition) const {
  if (!host.process.alive() || !host.node) return std::nullopt;
  return host.node->election(partition).leads();
}

bool ElectionWorld::leased(ElectionHost& host, size_t partition) {
  return leads(host, partition) && host.node->election(partition).lease_until() > host.process.now();
}

ElectionHost* ElectionWorld::leader(size_t partition) {
  for (auto& host : hosts_)
    if (leased(*host, partition)) return host.get();
  return nullptr;
}

model::Epoch ElectionWorld::epoch(size_t partition) const {
  const auto* text = coord_.value(layout_.government(kDistribution, region(partition)));
  return text ? coord::parse_government(*text)->epoch : model::Epoch{};
}

bool ElectionWorld::level(const ElectionHost& host, size_t partition, const ElectionHost& other) const {
  const auto& voters = voters_[partition];
  return std::any_of(voters.begin(), voters.end(), [&](const model::Voter& v) {
    return v.server == other.id && host.node->level(partition, v.assignment);
  });
}

void ElectionWorld::resign(ElectionHost& host, size_t partition, const ElectionHost* successor) {
  model::AssignmentId to;
  for (const auto& v : voters_[partition])
    if (successor != nullptr && v.server == successor->id && level(host, partition, *successor)) to = v.assignment;
  host.node->resign(partition, to);
}

// --- what must hold ----------------------------------------------------------------------------------------------

// S7: no two leases at one instant of the world.
void ElectionWorld::check() {
  for (size_t p = 0; p < partitions_.size(); ++p) {
    size_t leading = 0;
    for (const auto& host : hosts_) leading += leads(*host, p) ? 1 : 0;
    if (leading < 2) continue;
    const ElectionHost* one = nullptr;
    for (auto& host : hosts_) {
      if (!leased(*host, p)) continue;
      if (one != nullptr) violation(one->id.name + " and " + host->id.name + " hold a lease at the same time (S7)");
      one = host.get();
    }
  }
}

void ElectionWorld::began_to_lead(const ElectionHost& host, size_t partition, model::Epoch epoch, const ToyLog& log) {
  const auto who = host.id.name + "/" + std::to_string(host.starts);
  const auto [at, first] = led_[partition].emplace(epoch, who);
  if (!first) violation(who + " and " + at->second + " lead epoch " + to_string(epoch));
  const auto& history = histories_[partition];
  if (log.size() < history.size() || !std::equal(history.begin(), history.end(), log.begin()))
    violation(who + " leads epoch " + to_string(epoch) + " without something that was committed (S18)");
}

void ElectionWorld::committed(const ElectionHost& host, size_t partition, model::Epoch epoch, const ToyLog& log,
                              size_t length) {
  auto& history = histories_[partition];
  const auto common = static_cast<std::ptrdiff_t>(std::min(length, history.size()));
  if (!std::equal(log.begin(), log.begin() + common, history.begin()))
    return violation(host.id.name + " commits another history in epoch " + to_string(epoch) + " (S2)");
  const bool more = length > history.size();
  if (more) history.assign(log.begin(), log.begin() + static_cast<std::ptrdiff_t>(length));
  for (auto& other : hosts_) {
    if (other.get() == &host || !more) continue;
    // What was durable on a majority in time may be found out late, as long as whoever serves had it committed by then.
    if (leased(*other, partition) && other->node->serves(partition))
      violation(host.id.name + " commits while " + other->id.name + " serves under its lease (S7)");
    const auto theirs = leads(*other, partition);
    if (!theirs || *theirs < epoch) continue;
    const auto& has = other->node->log(partition);
    if (has.size() < history.size() || !std::equal(history.begin(), history.end(), has.begin()))
      violation(other->id.name + " leads without what " + host.id.name + " commits in an older epoch (S14)");
  }
}

// --- what goes wrong ---------------------------------------------------------------------------------------------

void ElectionWorld::set_up() {
  for (auto& host : hosts_) start(*host);
  const bool ruled = wait(
      [this] {
        for (size_t p = 0; p < partitions_.size(); ++p)
          if (leader(p) == nullptr || histories_[p].empty()) return false;
        return true;
      },
      5s);
  if (!ruled) violation("nobody was elected in a quiet world");
}

void ElectionWorld::draw_faults() {
  const auto often = [this](double most) {
    return random_.chance(0.5) ? most * static_cast<double>(random_.below(1000)) / 1000 : 0;
  };
  auto& net = network_.faults();
  net.lose = often(0.05);
  net.lose_answer = often(0.05);
  net.late = often(0.03);
  net.late_max = random_.chance(0.5) ? 500ms : 3s;
  net.duplicate = often(0.05);
  net.reorder = often(0.1);
  net.slow = often(0.1);
  net.slow_max = random_.chance(0.3) ? 400ms : 50ms;
  auto& coord = coord_.faults();
  coord.lose_request = often(0.1);
  coord.lose_reply = often(0.2);
  coord.late_change = often(0.1);
  coord.lose_read = often(0.1);
  coord.lose_watch = often(0.5);
  coord.delay_watch = often(0.3);
  coord.lag_spike = often(0.1);
}

void ElectionWorld::disturb() {
  disturbing_ = true;
  disturb_once();
}

void ElectionWorld::disturb_once() {
  scheduler_.after(some(1200ms), [this] {
    if (!disturbing_) return;
    disturb_once();
    const size_t p = random_.below(partitions_.size());
    // Half of what goes wrong goes wrong with a leader.
    auto* victim = hosts_[random_.below(hosts_.size())].get();
    if (random_.chance(0.5))
      for (auto& host : hosts_)
        if (leads(*host, p)) victim = host.get();
    auto& other = *hosts_[random_.below(hosts_.size())];
    switch (random_.below(18)) {
      case 0: kill(*victim); break;
      case 1: victim->process.arm_crash(1 + random_.below(30)); break;
      case 2:
        kill(*victim);
        scheduler_.after(some(300ms), [this, victim] { start(*victim); });
        break;
      case 3:
      case 4:
      case 5:
        for (auto& host : hosts_)
          if (random_.chance(0.7)) start(*host);
        break;
      case 6: coord_.expire(victim->id.name); break;
      case 7: coord_.outage(some(4s)); break;
      case 8: coord_.cut(victim->id.name); break;
      case 9: network_.cut(victim->id.name, other.id.name); break;
      case 10: network_.cut(victim->id.name, "*"); break;
      case 11: network_.cut("*", victim->id.name); break;
      case 12: network_.heal(), coord_.heal(); break;
      case 13: victim->process.pause(some(2s)); break;
      case 14: victim->disk_stands_until = victim->process.now() + some(2500ms); break;
      case 15:
        if (leads(*victim, p)) resign(*victim, p, random_.chance(0.7) && &other != victim ? &other : nullptr);
        break;
      case 17: {  // the way is congested, and then there is none
        const auto usual = std::pair(network_.faults().slow, network_.faults().slow_max);
        network_.faults().slow = 0.6;
        network_.faults().slow_max = 450ms;
        scheduler_.after(some(600ms), [this, victim, usual] {
          if (!disturbing_) return;
          std::tie(network_.faults().slow, network_.faults().slow_max) = usual;
          network_.cut_both(victim->id.name, "*");
        });
        break;
      }
      case 16: {  // all the others lose their power for a moment
        const auto back = some(150ms);
        for (auto& host : hosts_) {
          if (host.get() == victim) continue;
          kill(*host);
          scheduler_.after(back, [this, h = host.get()] { start(*h); });
        }
        break;
      }
    }
    if (random_.chance(0.3)) scheduler_.after(some(1s), [this] { network_.heal(), coord_.heal(); });
  });
}

void ElectionWorld::stop_faults() {
  disturbing_ = false;
  network_.faults() = {};
  coord_.faults() = {};
  coord_.faults().session_timeout = options_.session_timeout;
  network_.heal();
  coord_.heal();
  for (auto& host : hosts_) {
    host->process.arm_crash(0);
    start(*host);
  }
}

void ElectionWorld::finish() {
  if (!violation_.empty()) return;
  stop_faults();
  for (auto& host : hosts_) wait([&] { return !host->process.paused(); }, 5s);
  for (size_t p = 0; p < partitions_.size() && violation_.empty(); ++p) {
    const auto before = histories_[p].size();
    if (wait([&] { return leader(p) != nullptr && histories_[p].size() > before + 3; }, kSettles)) continue;
    std::string doing;
    for (auto& host : hosts_)
      doing += " " + host->id.name + " " + (host->node ? std::string(host->node->election(p).doing()) : "is dead");
    violation("nobody leads though the faults have stopped:" + doing);
  }
}

}  // namespace cantle::sim
