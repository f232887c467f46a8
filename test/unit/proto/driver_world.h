// A table, its servers and what they publish, for the tests of the drivers: METADATA changes by the real operations.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lib/model/operation.h"
#include "lib/proto/driver.h"

namespace cantle::proto::test {

using model::ServerId;

class DriverWorld {
 public:
  explicit DriverWorld(uint64_t seed = 1, uint32_t replicas = 3, int servers = 5,
                       model::Replication replication = model::Replication::push)
      : random(seed) {
    for (int i = 1; i <= servers; ++i) live.insert(ServerId{"p" + std::to_string(i)});
    model::ops::CreateTable create;
    create.name = "t";
    create.table = model::TableUuid::draw(random);
    create.replicas = replicas;
    create.replication = replication;
    model::ops::NewPartition p;
    p.id = model::PartitionId::draw(random);
    for (uint32_t i = 0; i < replicas; ++i)
      p.assignments.push_back({ServerId{"p" + std::to_string(i + 1)}, model::AssignmentId::draw(random)});
    create.partitions.push_back(p);
    auto first = model::apply(nullptr, std::vector<model::Operation>{create}, context(""));
    EXPECT_TRUE(first) << base::to_string(first.error());
    map = std::make_shared<const model::Metadata>(std::move(*first));
  }

  base::Status commit(const model::Operation& op) {
    auto next = model::apply(map.get(), std::vector<model::Operation>{op}, context(std::string(32, 'h')));
    if (!next) return base::fail(std::move(next).error());
    map = std::make_shared<const model::Metadata>(std::move(*next));
    ++commits[std::string(model::operation_name(op))];
    return base::ok();
  }
  void must(const model::Operation& op) {
    auto status = commit(op);
    ASSERT_TRUE(status) << model::to_string(op) << ": " << base::to_string(status.error());
  }
  const model::Partition& only() const { return map->partitions.front(); }
  World world() const { return {map, observed, live, governments}; }

  model::AttemptId split(std::vector<ServerId> low = {}, std::vector<ServerId> high = {}) {
    auto op = model::draw_split(only(), "m", low, high, random);
    must(op);
    return op.attempt;
  }
  model::AttemptId merge() {
    auto op = model::draw_merge(map->partitions[0], map->partitions[1], random);
    must(op);
    return op.attempt;
  }
  // What the leader of a partition reports of the cut of an attempt; `holders` empty: it has not cut yet.
  void cut_on(const model::Partition& p, const model::AttemptId& attempt, model::Epoch epoch, int32_t version,
              std::vector<ServerId> holders) {
    auto& seen = governments[p.id];
    seen.version = version;
    seen.government.epoch = epoch;
    seen.government.voters.clear();
    for (const auto& a : p.assignments) seen.government.voters.push_back({a.slot, a.server, a.id});
    seen.government.leader = p.assignments.front().id;
    seen.government.cut.reset();
    if (!holders.empty())
      seen.government.cut = model::CutReport{attempt, {epoch, {epoch.value * 10}, 5}, std::move(holders)};
  }
  model::AttemptId replace(const ServerId& from, const ServerId& to, bool dead) {
    auto op = model::draw_replace(only(), *find_assignment(only(), from), to, dead, random);
    must(op);
    return op.attempt;
  }
  void observe(const ServerId& server) { observed[server] = map->txnseq; }
  // What the live servers do by themselves: observe, and report what they have been filled with.
  void servers_act() {
    for (const auto& s : live) observe(s);
    std::vector<model::Operation> marks;
    for (const auto& p : map->partitions) {
      for (const auto& a : p.assignments) mark(a, &marks);
      if (!p.split) continue;
      for (const auto& a : p.split->low.assignments) mark(a, &marks);
      for (const auto& a : p.split->high.assignments) mark(a, &marks);
    }
    for (const auto& m : marks) must(m);
  }

  base::SeededRandom random;
  std::shared_ptr<const model::Metadata> map;
  std::map<ServerId, model::TxnSeq> observed;
  std::set<ServerId> live;
  std::map<model::PartitionId, GovernmentSeen> governments;
  std::map<std::string, int> commits;

 private:
  void mark(const model::Assignment& a, std::vector<model::Operation>* out) const {
    if (a.state == model::AssignmentState::initializing && live.contains(a.server))
      out->push_back(model::ops::MarkAvailable{a.id, a.server});
  }
  model::ApplyContext context(std::string hash) {
    return {model::TxnId::draw(random), model::ChangeId::draw(random), std::move(hash)};
  }
};

// Runs a driver against the world. `crash_at`: the driver is thrown away before it performs that effect (or, with
// `after`, before it hears the answer), and a fresh one goes on.
struct Play {
  int crash_at = -1;
  bool after = false;
  bool unknown = false;  // the first change is committed, and answered OUTCOME_UNKNOWN
  int effects = 0;       // performed
  std::vector<std::string> waits;
  driver::Ended ended;
  bool finished = false;

  template <class Driver>
  void drive(DriverWorld& w, const model::AttemptId& attempt, const std::function<void()>& between = {}) {
    auto d = std::make_unique<Driver>(attempt);
    base::Instant now{std::chrono::seconds(1)};
    driver::Effects todo = d->step(driver::Begin{now});
    for (int turn = 0; turn < 400 && !finished; ++turn) {
      now = now + std::chrono::milliseconds(100);
      if (todo.empty()) {
        if (between) between();
        todo = d->step(driver::Tick{now});
        continue;
      }
      auto effect = todo.front();
      todo.erase(todo.begin());
      const bool crash = effects++ == crash_at;
      if (crash && !after) {
        d = std::make_unique<Driver>(attempt);
        todo = d->step(driver::Begin{now});
        continue;
      }
      driver::Effects more = perform(*d, w, effect, now);
      if (crash) {
        d = std::make_unique<Driver>(attempt);
        more = d->step(driver::Begin{now});
        todo.clear();
      }
      todo.insert(todo.end(), more.begin(), more.end());
    }
  }

 private:
  driver::Effects perform(DriverBase& d, DriverWorld& w, const driver::Effect& effect, base::Instant now) {
    if (const auto* look = std::get_if<driver::Look>(&effect))
      return d.step(driver::Looked{now, look->number, w.world()});
    if (const auto* submit = std::get_if<driver::Submit>(&effect)) {
      auto status = w.commit(submit->operation);
      if (unknown && status) {
        unknown = false;
        status = base::fail(base::Code::outcome_unknown, "the connection broke");
      }
      return d.step(driver::Changed{now, submit->number, status});
    }
    if (const auto* wait = std::get_if<driver::Waiting>(&effect)) {
      std::string line = wait->why + ":";
      for (const auto& s : wait->for_whom) line += " " + s.name;
      waits.push_back(line);
      return {};
    }
    ended = std::get<driver::Ended>(effect);
    finished = true;
    return {};
  }
};

}  // namespace cantle::proto::test
