// Elections and leases under every fault (election_world.h).
#include <gtest/gtest.h>

#include <algorithm>

#include "test/sim/election_world.h"

namespace cantle::sim {
namespace {

ElectionOptions options_of(uint64_t seed) {
  constexpr size_t kServers[] = {3, 3, 5, 3, 7, 3, 5, 1};
  ElectionOptions options;
  options.servers = kServers[seed % 8];
  options.partitions = seed % 3 == 0 ? 2 : 1;
  return options;
}

Verdict run_election(uint64_t seed) {
  ElectionWorld w(seed, options_of(seed));
  w.set_up();
  w.draw_faults();
  w.disturb();
  w.run(20s);
  w.finish();
  return w.verdict();
}
const Simulation election("election", run_election);

// S35: the coordination service is away, and the leader goes on through restarts of a follower, short cuts and pauses:
// nobody seals without it.
Verdict run_outage(uint64_t seed) {
  auto options = options_of(seed);
  ElectionWorld w(seed, options);
  w.set_up();
  w.run(1s);
  std::vector<std::pair<ElectionHost*, model::Epoch>> leaders;
  for (size_t p = 0; p < w.partitions() && w.violated().empty(); ++p) leaders.emplace_back(w.leader(p), w.epoch(p));
  w.coord().outage(20s);
  w.network().faults().slow = 0.02;
  const auto begun = w.scheduler().now();
  while (w.violated().empty() && w.scheduler().now() < begun + 15s) {
    auto& leader = *leaders[w.random().below(leaders.size())].first;
    auto& other = *w.hosts()[w.random().below(w.hosts().size())];
    const bool leads = std::any_of(leaders.begin(), leaders.end(), [&](const auto& l) { return l.first == &other; });
    switch (w.random().below(4)) {
      case 0:
        if (leads) break;
        w.kill(other);
        w.run(w.some(500ms));
        w.start(other);
        break;
      case 1:  // long enough to be missed, too short to resign
        w.network().cut_both(leader.id.name, "*");
        w.run(620ms + w.some(60ms));
        w.network().heal();
        break;
      case 2:
        leader.process.pause(400ms + w.some(500ms));
        w.run(1s);
        break;
      case 3: w.network().faults().lose = w.random().chance(0.5) ? 0.01 : 0; break;
    }
    std::vector<size_t> before;
    for (size_t p = 0; p < leaders.size(); ++p) before.push_back(w.committed(p));
    w.run(1200ms);
    for (size_t p = 0; p < leaders.size(); ++p) {
      const auto& [host, epoch] = leaders[p];
      if (w.leads(*host, p) != epoch) w.violation(host->id.name + " does not lead any more in an outage (S35)");
      if (w.committed(p) == before[p]) w.violation("nothing was committed for more than a second in an outage (S35)");
    }
  }
  w.run(5s);
  w.finish();
  return w.verdict();
}
const Simulation outage("election_outage", run_outage);

// S21: some do not hear some others, for good. Whoever is heard and answered by a majority may lead, and once it does,
// nobody disturbs it.
Verdict run_one_way(uint64_t seed) {
  auto options = options_of(seed);
  options.servers = std::max<size_t>(3, options.servers);
  ElectionWorld w(seed, options);
  w.set_up();
  w.run(w.some(2s));
  const auto& hosts = w.hosts();
  const auto draw = [&] { return w.random().below(hosts.size()); };
  std::vector<std::pair<size_t, size_t>> cuts;
  const auto able = [&] {
    size_t can = 0;
    for (size_t a = 0; a < hosts.size(); ++a) {
      size_t reached = 1;
      for (size_t b = 0; b < hosts.size(); ++b)
        if (a != b)
          reached += std::none_of(cuts.begin(), cuts.end(),
                                  [&](const auto& c) { return c == std::pair(a, b) || c == std::pair(b, a); });
      can += reached >= model::majority(hosts.size()) ? 1 : 0;
    }
    return can;
  };
  const size_t wanted = 1 + w.random().below(hosts.size());
  for (size_t i = 0; i < wanted; ++i) {
    cuts.emplace_back(draw(), draw());
    if (cuts.back().first == cuts.back().second || able() == 0) cuts.pop_back();
  }
  for (const auto& [a, b] : cuts) w.network().cut(hosts[a]->id.name, hosts[b]->id.name);
  w.run(15s);
  std::vector<uint64_t> then, had;
  for (size_t p = 0; p < w.partitions(); ++p) then.push_back(w.leaderships(p)), had.push_back(w.committed(p));
  w.run(15s);
  for (size_t p = 0; p < w.partitions() && w.violated().empty(); ++p) {
    if (w.leaderships(p) != then[p])
      w.violation("elections do not end under a one-way cut: " + std::to_string(w.leaderships(p)) + " by now (S21)");
    if (w.leader(p) == nullptr || w.committed(p) < had[p] + 100)
      w.violation("nobody leads under a one-way cut though some could (S21)");
  }
  // Nor was anything prepared meanwhile that disturbs once everybody is heard again.
  w.network().heal();
  w.run(3s);
  for (size_t p = 0; p < w.partitions() && w.violated().empty(); ++p)
    if (w.leaderships(p) != then[p]) w.violation("who heard the leader again had it elected anew (S21)");
  w.finish();
  return w.verdict();
}
const Simulation one_way("election_one_way", run_one_way);

// In a quiet world: how long nobody can write when a leader dies, and when it hands over.
Verdict run_quiet(uint64_t seed) {
  auto options = options_of(seed);
  options.servers = std::max<size_t>(3, options.servers);
  ElectionWorld w(seed, options);
  w.set_up();
  w.run(w.some(2s));
  const size_t p = w.partitions() - 1;
  auto* leader = w.leader(p);
  if (leader == nullptr) return w.violation("nobody leads a quiet world"), w.verdict();
  const bool dies = seed % 2 == 0;
  const auto& chosen = *w.hosts()[leader == w.hosts()[0].get() ? 1 : 0];
  w.wait([&] { return w.level(*leader, p, chosen); }, 1s);
  if (dies)
    w.kill(*leader);
  else
    w.resign(*leader, p, &chosen);
  const auto before = w.committed(p);
  const Duration most = dies ? 1000ms : 150ms;
  if (!w.wait([&] { return w.leader(p) != nullptr && w.committed(p) > before; }, most))
    w.violation(dies ? "a dead leader was not replaced in time" : "a hand-over was not done in time");
  if (!dies && w.violated().empty() && w.leader(p) != &chosen) w.violation("not the chosen one leads");
  w.run(3s);
  w.finish();
  return w.verdict();
}
const Simulation quiet("election_quiet", run_quiet);

TEST(SimElection, a_dead_leader_is_replaced_and_a_hand_over_is_done_in_time) {
  run_seeds("election quiet", narrow(300), run_quiet);
}

TEST(SimElection, sim_s35_leaders_go_on_through_an_outage_of_the_coordination_service) {
  run_seeds("election s35", narrow(300), run_outage);
}

TEST(SimElection, sim_s21_a_one_way_cut_leaves_one_leader_and_no_elections) {
  run_seeds("election s21", narrow(300), run_one_way);
}

TEST(SimElection, one_leader_an_epoch_one_lease_at_a_time_and_nothing_committed_is_lost) {
  run_seeds("election", 300, run_election);
}

}  // namespace
}  // namespace cantle::sim
