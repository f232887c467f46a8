// peers [--rounds N] [--seconds S] [--dir DIR] [--only WORDS] [--missed MIB] [--missed-value BYTES]
// [--missed-rate N]: cantle beside etcd and Redis, three servers each, on this machine; exits 2 if a bar was missed
// (`make bench-peers`; test/README.md). --only: figures whose name has that in it, for a profile; the stores that it
// takes. --missed: what a follower has missed when it catches up, in values of so many bytes, while a client makes N
// writes a second; 0: that is not measured.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "test/peers/catch_up.h"
#include "test/peers/protocols.h"
#include "test/peers/servers.h"

namespace cantle::peers {
namespace {

using bench::Bar;
using bench::Samples;

struct Options {
  int rounds = 3;
  double seconds = 1.0;
  std::string only;
  CatchUpOptions catch_up;
  std::string dir = std::filesystem::current_path().string() + "/build/peers";
};

Outcome must(const Plan& plan, const std::string& what) {
  auto outcome = load(plan);
  if (!outcome.error.empty()) give_up(what + ": " + outcome.error);
  return outcome;
}

// One figure: a store, a way of asking it, and what came of it in each round.
struct Figure {
  std::string what;
  std::function<Plan()> plan;
  Samples rate, p50, p99;
};

class Peers {
 public:
  explicit Peers(const Options& options) : options_(options) {
    add_figures();
    if (wanted("redis")) redis_.emplace(options.dir);
    if (wanted("etcd")) etcd_.emplace(options.dir);
    if (!wanted("cantle")) return;
    cantle_.emplace(options.dir);
    cantle_->create("t", 3);
    if (wanted("k=1")) cantle_->create("alone", 1);
    if (catches_up("cantle"))
      catch_up_.emplace(options.catch_up, options.dir, &*cantle_, catches_up("redis") ? &*redis_ : nullptr);
  }

  void run() {
    fill();
    for (int round = 0; round < options_.rounds; round++)
      for (auto& [name, figure] : figures_) measure(figure, round);
    for (int round = 0; catch_up_ && round < options_.rounds; round++) catch_up_->round(round);
    print();
  }
  int missed() const { return report_.missed(); }

 private:
  Plan plan(uint16_t port, MakeProtocol protocol, Op op, int connections, int in_flight) const {
    Plan p;
    p.port = port;
    p.protocol = std::move(protocol);
    p.op = op;
    p.connections = connections;
    p.in_flight = in_flight;
    p.seconds = options_.seconds;
    return p;
  }
  bool catches_up(const std::string& store) const {
    return options_.catch_up.missed_mib > 0 && (store + " catch-up").find(options_.only) != std::string::npos;
  }
  bool wanted(const std::string& word) const {
    if ((word == "cantle" || word == "redis") && catches_up(word)) return true;
    return std::any_of(figures_.begin(), figures_.end(),
                       [&](const auto& f) { return f.first.find(word) != std::string::npos; });
  }
  void add(const std::string& name, std::function<Plan()> make) {
    if (name.find(options_.only) == std::string::npos) return;
    figures_.push_back({name, {name, std::move(make), {}, {}, {}}});
  }

  // Those that are compared stand side by side, so that they are measured close to each other.
  void add_figures() {
    puts("put 64x1", 64, 1);
    puts("put 64x16", 64, 16);
    for (const int depth : {1, 16}) {
      const std::string name = "get 64x" + std::to_string(depth);
      // Ours after theirs: right behind the puts they would be measured with what is still to be taken into the index.
      add("redis " + name,
          [=, this] { return plan(redis_->primary(), redis_protocol(Wait::each), Op::get, 64, depth); });
      if (depth == 1)
        add("etcd " + name, [=, this] { return plan(etcd_->leader(), etcd_protocol(), Op::get, 64, depth); });
      add("cantle " + name,
          [=, this] { return plan(cantle_->leader("t").port, cantle_protocol("t"), Op::get, 64, depth); });
      add("cantle session " + name, [=, this] {
        return plan(cantle_->follower("t").port, cantle_protocol("t", Read::session), Op::get, 64, depth);
      });
    }
    // Last, when what the others wrote has long been taken into whatever it is kept in.
    puts("put 1x1", 1, 1);
  }
  void puts(const std::string& name, int connections, int depth) {
    add("cantle " + name,
        [=, this] { return plan(cantle_->leader("t").port, cantle_protocol("t"), Op::put, connections, depth); });
    add("etcd " + name, [=, this] { return plan(etcd_->leader(), etcd_protocol(), Op::put, connections, depth); });
    add("redis " + name,
        [=, this] { return plan(redis_->primary(), redis_protocol(Wait::burst), Op::put, connections, depth); });
    if (depth > 1)
      add("redis " + name + " WAIT each",
          [=, this] { return plan(redis_->primary(), redis_protocol(Wait::each), Op::put, connections, depth); });
    if (connections > 1)
      add("cantle k=1 " + name, [=, this] {
        return plan(cantle_->leader("alone").port, cantle_protocol("alone"), Op::put, connections, depth);
      });
  }

  // Every key once, in each store.
  void fill() {
    std::vector<std::pair<std::string, Plan>> all;
    if (cantle_) all.emplace_back("cantle", plan(cantle_->leader("t").port, cantle_protocol("t"), Op::put, 64, 16));
    if (wanted("k=1"))
      all.emplace_back("cantle k=1", plan(cantle_->leader("alone").port, cantle_protocol("alone"), Op::put, 64, 16));
    if (redis_) all.emplace_back("redis", plan(redis_->primary(), redis_protocol(Wait::burst), Op::put, 64, 16));
    if (etcd_) all.emplace_back("etcd", plan(etcd_->leader(), etcd_protocol(), Op::put, 64, 16));
    for (auto& [name, p] : all) {
      p.count = kKeys;
      must(p, "filling " + name);
    }
  }

  void measure(Figure& figure, int round) {
    Plan p = figure.plan();
    if (p.port == 0) give_up(figure.what + ": nobody leads");
    p.seed = static_cast<uint64_t>(round) + 1;
    const auto outcome = must(p, figure.what);
    figure.rate.add(outcome.per_second);
    figure.p50.add(outcome.latency_us.median());
    figure.p99.add(outcome.latency_us.quantile(0.99));
  }

  const Figure* of(const std::string& name) const {
    for (const auto& [own, figure] : figures_)
      if (own == name) return &figure;
    return nullptr;
  }
  void row(const std::string& what, const std::string& unit, const Samples Figure::*ours_of, const std::string& ours,
           const Samples Figure::*theirs_of, const std::string& theirs, double bar, Bar kind) {
    const auto *a = of(ours), *b = of(theirs);
    if (a == nullptr || b == nullptr) return;
    report_.report({what, unit, (a->*ours_of).median(), theirs, (b->*theirs_of).median(), bar, kind});
  }
  void rate(const std::string& ours, const std::string& theirs, double bar) {
    row(ours, "1/s", &Figure::rate, ours, &Figure::rate, theirs, bar, Bar::at_least);
  }

  void print() {
    std::printf("%-32s %12s %10s %10s\n", "medians of rounds", "1/s", "p50 us", "p99 us");
    for (const auto& [name, f] : figures_)
      std::printf("%-32s %12.0f %10.0f %10.0f\n", name.c_str(), f.rate.median(), f.p50.median(), f.p99.median());
    std::printf("\n");
    rate("cantle put 64x1", "etcd put 64x1", 4);
    rate("cantle put 64x1", "redis put 64x1", 1.5);
    rate("cantle put 64x16", "redis put 64x16", 0.7);
    rate("cantle put 64x16", "redis put 64x16 WAIT each", 0.7);
    const std::string one = "cantle put 1x1";
    row(one + ", p50", "us", &Figure::p50, one, &Figure::p50, "etcd put 1x1", 0.5, Bar::at_most);
    row(one + ", p50", "us", &Figure::p50, one, &Figure::p50, "redis put 1x1", 0.8, Bar::at_most);
    row(one + ", p99 beside p50", "us", &Figure::p99, one, &Figure::p50, one, 4, Bar::at_most);
    rate("cantle get 64x1", "etcd get 64x1", 8);
    for (const char* who : {"cantle ", "cantle session "}) {
      rate(std::string(who) + "get 64x1", "redis get 64x1", 0.9);
      rate(std::string(who) + "get 64x16", "redis get 64x16", 0.6);
    }
    rate("cantle put 64x1", "cantle k=1 put 64x1", 0.45);
    rate("cantle put 64x16", "cantle k=1 put 64x16", 0.45);
    if (catch_up_) catch_up_->report(report_);
  }

  Options options_;
  std::optional<Redis> redis_;
  std::optional<Etcd> etcd_;
  std::optional<Cantle> cantle_;
  std::optional<CatchUp> catch_up_;
  std::vector<std::pair<std::string, Figure>> figures_;
  bench::Bench report_{0, ""};
};

int usage() {
  std::fprintf(stderr,
               "usage: peers [--rounds N] [--seconds S] [--dir DIR] [--only WORDS] [--missed MIB]\n"
               "             [--missed-value BYTES] [--missed-rate N]\n");
  return 64;
}

int run(const Options& options) {
  const Janitor janitor(options.dir);
  Peers peers(options);
  peers.run();
  std::printf("bench-peers: %d bars missed\n", peers.missed());
  return peers.missed() != 0 ? 2 : 0;
}

}  // namespace
}  // namespace cantle::peers

int main(int argc, char** argv) {
  cantle::peers::Options options;
  for (int i = 1; i < argc; i++) {
    const std::string_view arg = argv[i];
    if (i + 1 >= argc) return cantle::peers::usage();
    if (arg == "--rounds")
      options.rounds = std::max(1, std::atoi(argv[++i]));
    else if (arg == "--seconds")
      options.seconds = std::atof(argv[++i]);
    else if (arg == "--only")
      options.only = argv[++i];
    else if (arg == "--missed")
      options.catch_up.missed_mib = std::strtoull(argv[++i], nullptr, 10);
    else if (arg == "--missed-value")
      options.catch_up.value = std::max<size_t>(1, std::strtoull(argv[++i], nullptr, 10));
    else if (arg == "--missed-rate")
      options.catch_up.each_second = std::atof(argv[++i]);
    else if (arg == "--dir")
      options.dir = std::filesystem::absolute(argv[++i]).string();
    else
      return cantle::peers::usage();
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  return cantle::peers::run(options);
}
