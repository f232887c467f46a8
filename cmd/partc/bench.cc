// bench: closed-loop writers and readers, each slot with one request under way; latencies, gaps and, on request,
// the history of what was asked and what was answered.
#include <csignal>
#include <cstdio>

#include "cmd/partc/direct.h"
#include "cmd/partc/gap_log.h"
#include "cmd/partc/verbs.h"
#include "lib/base/bytes.h"
#include "lib/client/stats.h"
#include "lib/daemon/duration.h"
#include "lib/daemon/json.h"
#include "lib/io/loop.h"
#include "lib/io/signal.h"

namespace cantle::partc {

using base::Code;
using base::Instant;

namespace {

constexpr uint64_t kConnectionsMax = 1024, kInFlightMax = 1024;
constexpr uint64_t kDirectRefresh = 4096;  // direct reads between two looks at a newer state

enum class Workload : uint8_t { put, get, mixed, incr };
base::Result<Workload> parse_workload(const std::string& word) {
  if (word == "put") return Workload::put;
  if (word == "get") return Workload::get;
  if (word == "mixed") return Workload::mixed;
  if (word == "incr") return Workload::incr;
  return base::fail(Code::usage, "workload '" + word + "' is none of put, get, mixed, incr");
}

struct Plan {
  Workload workload = Workload::put;
  std::string table;
  model::Level level = model::Level::majority, write_level = model::Level::majority;
  base::Duration timeout{0}, duration{0};
  uint64_t records = 0, count = 0, key_size = 0, value_size = 0, seed = 0;
  double read_share = 0, rate = 0;
  bool keep_going = false;

  // "k" and digits, key_size bytes.
  std::string key(uint64_t i) const {
    std::string digits = std::to_string(i);
    return "k" + std::string(key_size - 1 - std::min(key_size - 1, digits.size()), '0') + digits;
  }
  // Says which write it was, and is filled up to value_size bytes.
  std::string value(uint64_t process, uint64_t number) const {
    std::string v = std::to_string(seed) + "." + std::to_string(process) + "." + std::to_string(number) + ".";
    if (v.size() < value_size) v.resize(value_size, 'x');
    return v;
  }
};

base::Result<Plan> plan_of(const BenchFlags& flags) {
  Plan plan;
  TRY_ASSIGN(plan.workload, parse_workload(flags.workload));
  TRY_ASSIGN(plan.level, parse_level(flags.level));
  if (model::is_push_level(plan.level)) plan.write_level = plan.level;  // the others are reads'
  TRY_ASSIGN(plan.timeout, daemon::parse_duration(flags.timeout));
  TRY_ASSIGN(plan.duration, daemon::parse_duration(flags.duration));
  plan.table = flags.table;
  plan.records = flags.records;
  plan.count = flags.count;
  plan.key_size = flags.key_size;
  plan.value_size = flags.value_size;
  plan.seed = flags.seed;
  plan.read_share = flags.read_share;
  plan.rate = flags.rate;
  plan.keep_going = flags.keep_going;
  const size_t digits = std::to_string(plan.records).size();
  if (plan.records == 0) return base::fail(Code::usage, "--records: at least 1");
  if (plan.key_size < digits + 1 || plan.key_size > model::kKeyMax)
    return base::fail(Code::usage,
                      "--key-size: " + std::to_string(digits + 1) + " to " + std::to_string(model::kKeyMax));
  if (plan.value_size > model::kValueMax)
    return base::fail(Code::usage, "--value-size: at most " + std::to_string(model::kValueMax));
  if (flags.connections == 0 || flags.connections > kConnectionsMax || flags.in_flight == 0 ||
      flags.in_flight > kInFlightMax)
    return base::fail(Code::usage, "--connections and --in-flight: 1 to 1024");
  return plan;
}

struct Result {
  uint64_t operations = 0, reads = 0, writes = 0, not_found = 0, failed = 0, unknown = 0, retries = 0;
  uint64_t acknowledged = 0;  // writes
  uint64_t repeats = 0;       // those among them whose answer is that to an attempt before
  Instant begun, ended;
  client::Histogram latency;
  base::Duration longest_gap{0};
  Instant longest_gap_end;
  std::map<std::string, uint64_t> errors;
};

void print(Tool& tool, const BenchFlags& flags, const Result& r, const client::GapMeter& gaps) {
  const double seconds = std::max(1e-9, std::chrono::duration<double>(r.ended - r.begun).count());
  const auto us = [&](double q) { return static_cast<double>(r.latency.quantile(q).count()) / 1e3; };
  std::string errors;
  for (const auto& [code, count] : r.errors) errors += (errors.empty() ? "" : " ") + code + "=" + std::to_string(count);
  daemon::print_object(tool.flags().format,
                       {{"workload", flags.workload},
                        {"connections", flags.connections},
                        {"in_flight", flags.in_flight},
                        {"operations", r.operations},
                        {"reads", r.reads},
                        {"writes", r.writes},
                        {"acknowledged", r.acknowledged},
                        {"repeats", r.repeats},
                        {"not_found", r.not_found},
                        {"failed", r.failed},
                        {"unknown", r.unknown},
                        {"retries", r.retries},
                        {"errors", errors},
                        {"seconds", seconds},
                        {"operations_per_second", static_cast<double>(r.operations) / seconds},
                        {"latency_us_mean", static_cast<double>(r.latency.mean().count()) / 1e3},
                        {"latency_us_p50", us(0.5)},
                        {"latency_us_p99", us(0.99)},
                        {"latency_us_p999", us(0.999)},
                        {"latency_us_max", static_cast<double>(r.latency.max().count()) / 1e3},
                        {"longest_gap_ms", static_cast<double>(gaps.longest().count()) / 1e6},
                        {"longest_gap_end_unix_ms", GapLog::wall_ms(tool.loop(), gaps.longest_end())}});
}

// A line of the history: who asked what when, and what came of it.
class History {
 public:
  static base::Result<std::unique_ptr<History>> open(const std::string& path) {
    if (path.empty()) return std::unique_ptr<History>();
    TRY_ASSIGN(auto stream, Stream::open(path));
    return std::unique_ptr<History>(new History(std::move(stream)));
  }
  struct Event {
    uint64_t process = 0;
    const char* op = "put";
    std::string key;
    const std::string* value = nullptr;  // null: none was there, or none is known; incr: what was added
    std::optional<int64_t> result{};     // incr: the new value
    Instant begin, end;
    const char* outcome = "ok";
    std::string version, error;
  };
  void add(const Event& e) {
    daemon::Json j;
    j.object().member("process", e.process).member("op", e.op).bytes("key", e.key);
    if (e.value)
      j.bytes("value", *e.value);
    else
      j.key("value").null();
    if (e.result) j.member("result", *e.result);
    j.member("begin_ns", e.begin.since_boot.count()).member("end_ns", e.end.since_boot.count());
    j.member("outcome", e.outcome);
    if (!e.version.empty()) j.member("version", e.version);
    if (!e.error.empty()) j.member("error", e.error);
    j.end();
    // Line by line: what was acknowledged must be in the file even if this process is killed next.
    if (auto s = stream_.write(j.str() + "\n"); !s && !failed_) failed_ = s.error();
    if (auto s = stream_.flush(); !s && !failed_) failed_ = s.error();
  }
  base::Status close() { return failed_ ? base::Status(base::fail(*failed_)) : base::ok(); }

 private:
  explicit History(Stream stream) : stream_(std::move(stream)) {}
  Stream stream_;
  std::optional<base::Error> failed_;
};

class Bench {
 public:
  Bench(Tool& tool, const Plan& plan, History* history, std::function<void(Instant, base::Duration)> on_gap)
      : plan_(plan),
        loop_(tool.loop()),
        history_(history),
        random_(plan.seed),
        gaps_(std::move(on_gap)),
        pacer_(plan.rate, loop_.refresh_now()),
        wake_(loop_, [this] { pump(); }) {}

  void add_connection(std::unique_ptr<client::Client> connection, uint64_t slots) {
    for (uint64_t i = 0; i < slots; ++i) idle_.push_back({.process = process_count_++, .client = connection.get()});
    clients_.push_back(std::move(connection));
  }

  base::Status run() {
    result_.begun = loop_.refresh_now();
    deadline_ = result_.begun + plan_.duration;
    pacer_ = client::Pacer(plan_.rate, result_.begun);
    pump();
    while (!loop_.run_for(std::chrono::milliseconds(200), [this] { return over(); })) pump();
    result_.ended = loop_.now();
    for (const auto& c : clients_) result_.retries += c->counts().retries;
    if (error_ && !plan_.keep_going) return base::fail(*error_);
    return base::ok();
  }
  void interrupt() { stopping_ = true; }

  const Result& result() const { return result_; }
  const client::GapMeter& gaps() const { return gaps_; }

 private:
  struct Slot {
    uint64_t process = 0;
    client::Client* client = nullptr;
  };

  bool no_more() const {
    if (stopping_ || (error_ && !plan_.keep_going)) return true;
    return plan_.count > 0 ? begun_ >= plan_.count : loop_.now() >= deadline_;
  }
  bool over() const { return no_more() && under_way_ == 0; }

  void pump() {
    while (!idle_.empty() && !no_more()) {
      if (pacer_.allowed(loop_.now()) == 0)
        return wake_.start(std::max(pacer_.next() - loop_.now(), base::Duration(1)));
      pacer_.spend(1);
      const Slot slot = idle_.back();
      idle_.pop_back();
      begin(slot);
    }
  }

  void begin(const Slot& slot) {
    const uint64_t number = begun_++;
    ++under_way_;
    const auto now = loop_.refresh_now();
    gaps_.sent(now);
    const bool read =
        plan_.workload == Workload::get || (plan_.workload == Workload::mixed && random_.chance(plan_.read_share));
    if (read) return begin_read(slot, plan_.key(random_.below(plan_.records)), now);
    const bool in_turn = plan_.workload == Workload::put || plan_.workload == Workload::incr;
    const auto key = plan_.key(in_turn ? number % plan_.records : random_.below(plan_.records));
    if (plan_.workload == Workload::incr) return begin_incr(slot, key, now);
    begin_write(slot, key, plan_.value(slot.process, number), now);
  }

  void begin_read(const Slot& slot, const std::string& key, Instant begun) {
    slot.client->get(plan_.table, key, {.level = plan_.level, .timeout = plan_.timeout},
                     [this, slot, key, begun](const base::Result<model::GetReply>& r) {
                       ++result_.reads;
                       const bool absent = !r && r.error().code == Code::not_found;
                       if (absent) ++result_.not_found;
                       ended(slot, "get", key, r ? &r->value : nullptr, std::nullopt, begun,
                             r || absent ? std::nullopt : std::optional(r.error()), r ? to_string(r->version) : "");
                     });
  }

  void begin_write(const Slot& slot, const std::string& key, const std::string& value, Instant begun) {
    slot.client->put(plan_.table, key, value, {.level = plan_.write_level, .timeout = plan_.timeout},
                     [this, slot, key, value = history_ ? value : std::string(),
                      begun](const base::Result<model::WriteReply>& r) { written(slot, "put", key, value, begun, r); });
  }

  void begin_incr(const Slot& slot, const std::string& key, Instant begun) {
    slot.client->incr(plan_.table, key, 1, {.timeout = plan_.timeout},
                      [this, slot, key, begun](const base::Result<model::WriteReply>& r) {
                        written(slot, "incr", key, "1", begun, r);
                      });
  }

  void written(const Slot& slot, const char* op, const std::string& key, const std::string& value, Instant begun,
               const base::Result<model::WriteReply>& r) {
    ++result_.writes;
    if (r) ++result_.acknowledged;
    if (r && r->repeat.value_or(false)) ++result_.repeats;
    ended(slot, op, key, &value, r ? r->result : std::nullopt, begun, r ? std::nullopt : std::optional(r.error()),
          r ? to_string(r->version) : "");
  }

  void ended(const Slot& slot, const char* op, const std::string& key, const std::string* value,
             const std::optional<int64_t>& result, Instant begun, const std::optional<base::Error>& error,
             const std::string& version) {
    const auto now = loop_.refresh_now();
    ++result_.operations;
    --under_way_;
    const bool unknown = error && error->code == Code::outcome_unknown;
    if (error) {
      ++(unknown ? result_.unknown : result_.failed);
      ++result_.errors[std::string(base::code_name(error->code))];
      // An unknown outcome is an answer of its own; a failure ends the run unless it shall go on.
      if (!unknown && !error_) error_ = *error;
    } else {
      result_.latency.add(now - begun);
      gaps_.acknowledged(now);
    }
    if (history_)
      history_->add({.process = slot.process,
                     .op = op,
                     .key = key,
                     .value = value,
                     .result = result,
                     .begin = begun,
                     .end = now,
                     .outcome = !error    ? "ok"
                                : unknown ? "unknown"
                                          : "fail",
                     .version = version,
                     .error = error ? to_string(*error) : ""});
    if (under_way_ == 0 && plan_.rate > 0) gaps_.idle();
    idle_.push_back(slot);
    pump();
  }

  const Plan plan_;
  io::Loop& loop_;
  History* history_;
  base::SeededRandom random_;
  Result result_;
  client::GapMeter gaps_;
  client::Pacer pacer_;
  io::Timer wake_;
  std::vector<Slot> idle_;
  std::vector<std::unique_ptr<client::Client>> clients_;
  uint64_t process_count_ = 0, begun_ = 0, under_way_ = 0;
  Instant deadline_;
  bool stopping_ = false;
  std::optional<base::Error> error_;
};

// Reads without a server, in this thread.
base::Result<int> bench_direct(Tool& tool, const BenchFlags& flags, const Plan& plan) {
  if (plan.workload != Workload::get) return base::fail(Code::usage, "--direct reads only: bench get");
  TRY_ASSIGN(auto direct, Direct::open(tool, flags.table, flags.direct));
  base::SeededRandom random(plan.seed);
  Result r;
  client::GapMeter gaps;
  r.begun = tool.loop().refresh_now();
  r.ended = r.begun;
  while (plan.count > 0 ? r.operations < plan.count : r.ended < r.begun + plan.duration) {
    TRY(direct->refresh());
    const auto begun = tool.loop().refresh_now();
    uint64_t n = plan.count > 0 ? std::min(kDirectRefresh, plan.count - r.operations) : kDirectRefresh;
    for (uint64_t i = 0; i < n; ++i) {
      TRY_ASSIGN(const bool there, direct->peek(plan.key(random.below(plan.records))));
      if (!there) ++r.not_found;
    }
    r.operations += n;
    r.reads += n;
    r.ended = tool.loop().refresh_now();
    r.latency.add((r.ended - begun) / static_cast<int64_t>(n));  // the mean of a portion
  }
  print(tool, flags, r, gaps);
  return daemon::kExitDone;
}

}  // namespace

base::Result<int> bench(Tool& tool, const BenchFlags& flags) {
  TRY_ASSIGN(const auto plan, plan_of(flags));
  if (!flags.direct.empty()) return bench_direct(tool, flags, plan);
  TRY_ASSIGN(auto history, History::open(flags.history));
  TRY_ASSIGN(auto gap_log, GapLog::open(flags.gap_log, tool.loop()));
  // In a history one put is one write: repeating it under another version would make it two. In a quorum table it is
  // repeated as the same one all the same.
  const client::RetryOptions retry{.deadline = plan.timeout, .repeat_unknown = history == nullptr};
  TRY(tool.client(retry));
  TRY(tool.map(flags.table, std::chrono::seconds(10)));
  Bench bench(tool, plan, history.get(), [&](Instant end, base::Duration gap) {
    if (gap_log) gap_log->add(end, gap);
  });
  for (uint64_t i = 0; i < flags.connections; ++i) {
    TRY_ASSIGN(auto connection, tool.another_client(retry));
    bench.add_connection(std::move(connection), flags.in_flight);
  }
  io::Signal interrupted(tool.loop(), SIGINT, [&] { bench.interrupt(); });
  io::Signal terminated(tool.loop(), SIGTERM, [&] { bench.interrupt(); });
  const auto ran = bench.run();
  print(tool, flags, bench.result(), bench.gaps());
  if (gap_log) TRY(gap_log->close());
  if (history) TRY(history->close());
  TRY(ran);
  return bench.result().failed > 0 ? daemon::kExitFailed : daemon::kExitDone;
}

}  // namespace cantle::partc
