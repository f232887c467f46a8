#include "test/peers/catch_up.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>
#include <utility>

#include "test/peers/protocols.h"

namespace cantle::peers {
namespace {

constexpr double kStarts = 30, kLevels = 300;  // seconds that it may take
constexpr double kBefore = 3;                  // seconds of the client's writes beforehand
constexpr double kMiB = 1 << 20;

// Looks every millisecond until it is so.
double when(const std::string& what, double seconds, const std::function<bool()>& is) {
  for (const double until = bench::now_s() + seconds; !is(); ::usleep(1000))
    if (bench::now_s() > until) give_up(what + ": not after " + std::to_string(static_cast<int>(seconds)) + " s");
  return bench::now_s();
}

// A load on a thread of its own, until finish().
class Beside {
 public:
  explicit Beside(Plan plan) : plan_(std::move(plan)) {
    plan_.until = [this] { return over_.load(); };
    thread_ = std::thread([this] { outcome_ = load(plan_); });
  }
  Outcome finish(const std::string& what) {
    over_ = true;
    thread_.join();
    if (!outcome_.error.empty()) give_up(what + ": " + outcome_.error);
    return std::move(outcome_);
  }

 private:
  std::atomic<bool> over_{false};
  Plan plan_;
  Outcome outcome_;
  std::thread thread_;
};

}  // namespace

CatchUp::CatchUp(const CatchUpOptions& options, std::string dir, const Cantle* cantle, Redis* redis)
    : options_(options), dir_(std::move(dir)), cantle_(cantle), redis_(redis) {}

uint64_t CatchUp::records() const { return (options_.missed_mib << 20) / options_.value; }

void CatchUp::round(int number) {
  if (cantle_ != nullptr) measure("cantle", cantle_way(), cantle_figure_, number);
  if (redis_ != nullptr) measure("redis", redis_way(), redis_figure_, number);
  copy_rate_.add(copy());
}

void CatchUp::measure(const std::string& store, const Way& way, Figure& figure, int round) {
  Plan client = way.writes(kValueSize);
  client.connections = options_.connections;
  client.in_flight = 1;
  client.each_second = options_.each_second;
  client.seed = static_cast<uint64_t>(round) + 1;
  client.seconds = kBefore;
  const auto before = load(client);
  if (!before.error.empty()) give_up(store + ": " + before.error);

  way.stop();
  Plan missed = way.writes(options_.value);
  missed.operations = records();
  missed.seed = client.seed;
  const auto done = load(missed);
  if (!done.error.empty()) give_up(store + ", what is missed: " + done.error);
  if (done.refused != 0)
    std::printf("%s: %llu times a write of what is missed was told to come later, in %llu writes\n", store.c_str(),
                static_cast<unsigned long long>(done.refused), static_cast<unsigned long long>(done.operations));

  way.start();
  const double begun = when(store + ": the catch-up", kStarts, way.begun);
  Beside beside(client);
  const double level = when(store + ": level", kLevels, way.level);
  const auto meanwhile = beside.finish(store);
  const double bytes = static_cast<double>(records() * (options_.value + kKeySize));
  figure.rate.add(bytes / kMiB / (level - begun));
  figure.before.add(before.latency_us.quantile(0.99));
  figure.meanwhile.add(meanwhile.latency_us.quantile(0.99));
  std::printf("%s: %.2f s, %.0f MiB/s; p50 %.0f and p99 %.0f us before, %.0f and %.0f meanwhile\n", store.c_str(),
              level - begun, bytes / kMiB / (level - begun), before.latency_us.median(),
              before.latency_us.quantile(0.99), meanwhile.latency_us.median(), meanwhile.latency_us.quantile(0.99));
}

// --- cantle ----------------------------------------------------------------------------------------

CatchUp::Way CatchUp::cantle_way() const {
  Way way;
  const auto leader = cantle_->leader("t"), follower = cantle_->follower("t");
  way.writes = [=](size_t value) {
    Plan p;
    p.port = leader.port;
    p.protocol = cantle_protocol("t", Read::linearizable, value);
    p.connections = 64;
    p.in_flight = 16;
    return p;
  };
  way.stop = [=, this] { cantle_->cluster().local("stop " + follower.name + " >&2"); };
  way.start = [=, this] { cantle_->cluster().local("start --no-wait " + follower.name + " >&2"); };
  const auto state = [=] { return cantle_follower(leader.port, "t", follower.name); };
  way.begun = [=] {
    const auto now = state();
    return now == "trailing" || now == "joined";
  };
  way.level = [=] { return state() == "joined"; };
  return way;
}

// --- Redis -----------------------------------------------------------------------------------------

// A replica that is stopped keeps its connection, and the primary all that it is to be sent; so the primary ends that
// connection. Its other replica is back at once.
CatchUp::Way CatchUp::redis_way() const {
  Way way;
  way.writes = [this](size_t value) {
    Plan p;
    p.port = redis_->primary();
    p.protocol = redis_protocol(Wait::burst, value);
    p.connections = 64;
    p.in_flight = 16;
    return p;
  };
  way.stop = [this] {
    redis_->signal_replica(SIGSTOP);
    redis_->ask(redis_->primary(), {"CLIENT", "KILL", "TYPE", "replica"});
    wait_until("redis: one replica", kStarts,
               [this] { return redis_->info(redis_->primary(), "connected_slaves") == 1; });
  };
  struct Target {
    int64_t from = -1, upto = -1, full = -1;
  };
  const auto target = std::make_shared<Target>();
  const auto offset = [this] { return redis_->info(redis_->stopped_replica(), "slave_repl_offset"); };
  way.start = [this, target, offset] {
    target->full = redis_->info(redis_->primary(), "sync_full");
    target->upto = redis_->info(redis_->primary(), "master_repl_offset");
    redis_->signal_replica(SIGCONT);
    target->from = offset();
  };
  way.begun = [target, offset] { return offset() > target->from; };
  way.level = [this, target, offset] {
    if (offset() < target->upto) return false;
    if (redis_->info(redis_->primary(), "sync_full") != target->full) give_up("redis: it was a full synchronisation");
    return true;
  };
  return way;
}

// --- a plain copy ----------------------------------------------------------------------------------

// MiB a second, from a file that was just written into a new one, and that synced.
double CatchUp::copy() const {
  const auto bytes = static_cast<off_t>(records() * (options_.value + kKeySize));
  const auto from = dir_ + "/copy-from", to = dir_ + "/copy-to";
  const int in = ::open(from.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const std::string chunk(1 << 20, 'v');
  for (off_t at = 0; at < bytes; at += static_cast<off_t>(chunk.size()))
    if (::pwrite(in, chunk.data(), std::min(chunk.size(), static_cast<size_t>(bytes - at)), at) < 0)
      give_up("no file to copy");
  ::fsync(in);
  const double began = bench::now_s();
  const int out = ::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  for (off_t at = 0; at < bytes;)
    if (::sendfile(out, in, &at, static_cast<size_t>(bytes - at)) <= 0) give_up("no copy");
  if (::fsync(out) != 0) give_up("no copy");
  const double took = bench::now_s() - began;
  ::close(in);
  ::close(out);
  ::unlink(from.c_str());
  ::unlink(to.c_str());
  return static_cast<double>(bytes) / kMiB / took;
}

// --- what came of it -------------------------------------------------------------------------------

void CatchUp::report(bench::Bench& bench) const {
  using bench::Bar;
  const auto& own = cantle_figure_;
  if (own.rate.empty()) return;
  if (!redis_figure_.rate.empty())
    bench.report(
        {"catch-up", "MiB/s", own.rate.median(), "redis psync", redis_figure_.rate.median(), 1.0, Bar::at_least});
  bench.report({"catch-up", "MiB/s", own.rate.median(), "copy and sync", copy_rate_.median(), 0.5, Bar::at_least});
  bench.report({"p99 of puts during the catch-up", "us", own.meanwhile.median(), "before it", own.before.median(), 2,
                Bar::at_most});
  if (!redis_figure_.rate.empty())
    bench.report(
        {"redis's", "us", redis_figure_.meanwhile.median(), "before it", redis_figure_.before.median(), 0, Bar::shown});
}

}  // namespace cantle::peers
