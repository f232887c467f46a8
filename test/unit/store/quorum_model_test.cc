// A quorum table's logs against a simple model, under a random schedule of everything that may happen to them: two
// partitions and a busy push table's share one journal; the process is killed and the power fails at any moment.
// Partitions are divided, and neighbours merged, and what comes of that, too.
//
// The model is the list of what was appended to the journal, in order. What an engine has found after a restart must be
// what some prefix of that list makes, and that prefix has all in it that was called back.
#include <gtest/gtest.h>

#include <optional>

#include "test/unit/store/quorum_fixture.h"

namespace cantle::store {
namespace {

using base::Code;
using model::Block;
using model::LogPoint;

constexpr uint8_t kPush = 3;  // partitions 1 and 2 are there from the start; 3 is the push table's
constexpr uint8_t kFirstChild = 10, kLastChild = 200;
constexpr size_t kKeys = 40;

std::string key_of(size_t n) { return "k" + std::to_string(10 + n); }

// A child that this server does not have: 0.
struct Division {
  LogPoint at;
  std::string point;
  uint8_t low = 0, high = 0;
};

// What a merge's target begins with, and no log of its own tells.
struct Past {
  Rows rows;
  uint64_t time_ms = 0;
  std::map<uint64_t, model::SeriesWindow> series;  // by client
};

struct Merger {
  LogPoint low_cut, high_cut;
  uint8_t low = 0, high = 0, target = 0;
  std::shared_ptr<const Past> past;
};

struct Op {
  enum class What : uint8_t { block, seal, cut, push, divide, merge } what = What::push;
  uint8_t p = 0;
  Block block;
  uint64_t promised = 0;
  LogPoint keep;
  Division division;
  Merger merger{};
};

// Of one partition, as a prefix of the ops makes it.
struct State {
  std::vector<Block> log;  // a child's begins with its ancestors'
  uint64_t promised = 0, commit = 0, pushed = 0;
  model::Interval interval;
  size_t inherited = 0;              // blocks
  LogPoint start;                    // of the log: behind a merge
  std::shared_ptr<const Past> past;  // there
  LogPoint end() const { return end_of_first(log.size()); }
  LogPoint end_of_first(size_t n) const { return n == 0 ? start : point_of(log[n - 1].header); }
  void step(const Op& op) {
    switch (op.what) {
      case Op::What::block:
        log.push_back(op.block);
        commit = std::max(commit, op.block.header.commit.value);
        break;
      case Op::What::seal: promised = std::max(promised, op.promised); break;
      case Op::What::cut:
        while (!log.empty() && end().lsn > op.keep.lsn) log.pop_back();
        break;
      case Op::What::push: pushed++; break;
      case Op::What::divide:
      case Op::What::merge: break;
    }
  }
  State child(const Division& division, bool low) const {
    State out;
    for (const auto& block : log)
      if (block.header.last() <= division.at.lsn) out.log.push_back(block);
    out.commit = division.at.lsn.value;
    out.inherited = out.log.size();
    out.start = start;
    out.past = past;
    out.interval =
        low ? model::Interval{interval.begin, division.point} : model::Interval{division.point, interval.end};
    return out;
  }
};

using States = std::map<uint8_t, State>;
void step(States& states, const Op& op) {
  if (op.what == Op::What::merge) {
    const auto& m = op.merger;
    State target;
    target.start = model::merged_point(m.low_cut, m.high_cut);
    target.commit = target.start.lsn.value;
    target.interval = {states.at(m.low).interval.begin, states.at(m.high).interval.end};
    target.past = m.past;
    states.erase(m.low);
    states.erase(m.high);
    states[m.target] = std::move(target);
    return;
  }
  if (op.what != Op::What::divide) return states[op.p].step(op);
  const auto parent = std::move(states.at(op.p));
  states.erase(op.p);
  if (op.division.low != 0) states[op.division.low] = parent.child(op.division, true);
  if (op.division.high != 0) states[op.division.high] = parent.child(op.division, false);
}

class Model : public QuorumStore {
 public:
  explicit Model(uint64_t seed) : random_(seed) {
    config.segment_bytes = 16 << 10;
    config.overlay_bytes = 48 << 10;
    config.checkpoint_interval = std::chrono::seconds(1);
    config.overlay_age = std::chrono::milliseconds(random_.chance(0.5) ? 200 : 3000);
    config.retention_bytes = random_.chance(0.5) ? 1 : uint64_t{1} << 30;
    config.tail_bytes = random_.chance(0.5) ? 500 : uint64_t{1} << 20;
    if (random_.chance(0.3)) {
      config.spill_from = 0;
      config.spill_value = 1;
    }
    disk.on_sync = [this](std::string_view) -> base::Status {
      if (syncs_left_ == 0) return base::fail(Code::io_error, "the power is gone");
      if (syncs_left_ > 0) syncs_left_--;
      return effect();
    };
    disk.on_write = [this](std::string_view) { return effect(); };
    files.before_commit = [this] { return effect(); };
  }

  // A short story in which everything happens once, and the power fails at its n-th effect. False: it came to its end.
  bool run_story(int n) {
    if (!begin()) return false;
    effects_left_ = n;
    for (int i = 0; i < 4; i++) add(1, true);
    run();
    commit_some(1);
    add(1, true);
    promise(1, 5);
    run();
    add(1, false);
    add(2, true);
    lanes->step();
    cut(1);
    add(1, true);
    commit_some(1);
    push_some();
    run();
    cut(1);
    run();
    add(1, true);
    promise(2, 7);
    add(1, false);
    commit_some(1);
    for (int i = 0; i < 3; i++) {
      clock.at = clock.at + std::chrono::seconds(4);
      engine->tick();
      run();
      add(2, false);
    }
    run();
    const bool died = effects_left_ == 0;
    restart(true);
    return died;
  }

  // The same around a divide.
  bool run_divide_story(int n) {
    if (!begin()) return false;
    effects_left_ = n;
    for (int i = 0; i < 3; i++) add(1, true);
    run();
    commit_some(1);
    add(2, true);
    divide(1);
    push_some();
    run();
    for (int i = 0; i < 2; i++) {
      clock.at = clock.at + std::chrono::seconds(4);
      engine->tick();
      run();
      for (const auto p : logs()) {
        add(p, true);
        run();
        commit_some(p);
      }
      promise(logs().back(), 20);
    }
    divide(logs().back());
    run();
    for (int i = 0; i < 3; i++) {
      clock.at = clock.at + std::chrono::seconds(4);
      engine->tick();
      run();
    }
    const bool died = effects_left_ == 0;
    restart(true);
    return died;
  }

  // The same around a merge of what was one, of which one is divided before and the target after.
  bool run_merge_story(int n) {
    if (!begin()) return false;
    for (int i = 0; i < 2; i++) add(1, true);
    run();
    commit_some(1);
    divide(1);
    run();
    effects_left_ = n;
    for (int i = 0; i < 3; i++)
      for (const auto p : logs()) add(p, true);
    run();
    for (const auto p : logs()) commit_some(p);
    merge(kFirstChild);
    push_some();
    add(logs().back(), true);
    run();
    for (int i = 0; i < 2; i++) {
      clock.at = clock.at + std::chrono::seconds(4);
      engine->tick();
      run();
      for (const auto p : logs()) {
        add(p, true);
        run();
        commit_some(p);
      }
      promise(logs().back(), 20);
    }
    divide(logs().back());
    for (const auto p : logs()) add(p, false);
    merge(logs().size() > 1 ? logs()[logs().size() - 2] : 0);
    run();
    for (int i = 0; i < 3; i++) {
      clock.at = clock.at + std::chrono::seconds(4);
      engine->tick();
      run();
    }
    const bool died = effects_left_ == 0;
    restart(true);
    return died;
  }

  void run_steps(int steps) {
    ASSERT_TRUE(begin());
    for (int i = 0; i < steps && !testing::Test::HasFatalFailure(); i++) step();
    restart(false);
  }
  int restarts = 0, divides = 0, merges = 0, lost_divides = 0;  // lost ones: of either
  uint64_t series_seen = 0, inherited_series = 0, merged_series = 0;

 private:
  bool begin() {
    if (!open() || !create_quorum(1, 1) || !create_quorum(2, 2) || !create(kPush, kPush)) return false;
    for (const uint8_t p : {uint8_t{1}, uint8_t{2}, kPush}) state_[p];
    return true;
  }
  std::vector<uint8_t> logs() const {
    std::vector<uint8_t> out;
    for (const auto& [p, state] : state_)
      if (p != kPush) out.push_back(p);
    return out;
  }
  const model::Interval& interval(uint8_t p) { return now(p).interval; }
  std::vector<std::string> keys(uint8_t p) {
    std::vector<std::string> out;
    for (size_t n = 0; n < kKeys; n++)
      if (interval(p).contains(key_of(n))) out.push_back(key_of(n));
    return out;
  }

  base::Status effect() {
    if (effects_left_ == 0) return base::fail(Code::io_error, "the power is gone");
    if (effects_left_ > 0) effects_left_--;
    return base::ok();
  }

  void step() {
    const auto there = logs();
    const auto p = there[random_.below(there.size())];
    switch (random_.below(17)) {
      case 16:
        if (random_.chance(0.25)) divide(p);
        if (random_.chance(0.35)) merge(p);
        break;
      case 0:
      case 1:
      case 2: add(p, true); break;
      case 3:
      case 4: add(p, false); break;
      case 5: again(p); break;
      case 6: wrong(p); break;
      case 7:
      case 8: commit_some(p); break;
      case 9: cut(p); break;
      case 10: promise(p, now(p).promised + random_.below(3)); break;
      case 11: push_some(); break;
      case 12:
        for (uint64_t n = random_.below(6); n > 0 && lanes->step(); n--) {
        }
        break;
      case 13:
        if (random_.chance(0.5)) run();
        clock.at = clock.at + std::chrono::milliseconds(random_.below(1500));
        engine->tick();
        break;
      case 14: check(p); break;
      default:
        if (random_.chance(0.15)) die();
        break;
    }
    if (!fatal.empty() && testing::Test::HasFatalFailure() == false) restart(true);
  }

  State& now(uint8_t p) { return state_[p]; }
  std::vector<Block>& truth(uint8_t p) { return truth_[p]; }
  // What a majority has of it that this log has not, after a crash: the leader sends that again, and nothing else.
  bool behind(uint8_t p) { return now(p).log.size() < truth(p).size(); }
  uint64_t truth_end(uint8_t p) {
    return truth(p).empty() ? now(p).start.lsn.value : truth(p).back().header.last().value;
  }

  std::vector<std::pair<std::string, std::string>> some_records(uint8_t p) {
    std::vector<std::pair<std::string, std::string>> puts;
    const auto all = keys(p);
    for (uint64_t n = 1 + random_.below(3); n > 0; n--)
      puts.emplace_back(all[random_.below(all.size())], std::string(random_.below(random_.chance(0.1) ? 2000 : 60),
                                                                    static_cast<char>('a' + random_.below(26))));
    return puts;
  }

  void add(uint8_t p, bool by_leader) {
    auto& state = now(p);
    Block block;
    if (behind(p)) {
      block = truth(p)[state.log.size()];
      by_leader = false;
    } else {
      auto epoch = std::max<uint64_t>(1, state.end().epoch.value);
      const bool begin = state.log.empty() || random_.chance(0.1);
      if (begin && state.end() != LogPoint{}) epoch = ++epochs_;
      epochs_ = std::max(epochs_, epoch);
      const auto known = std::min<uint64_t>(engine->quorum_log(partition(p))->commit.value, state.end().lsn.value);
      block = block_after(state.end(), p, epoch, known, begin ? decltype(some_records(p)){} : some_records(p),
                          somebody(p), random_.below(60001));
    }
    Op op{Op::What::block, p, block, 0, {}, {}};
    const auto done = told(op);
    if (by_leader) {
      const auto built = engine->build(partition(p), {block.header.kind, block.header.epoch, block.header.commit},
                                       block.payload, done);
      if (!built) return refused(built.error());
      op.block.header = *built;
    } else {
      const auto taken = take(block, done);
      if (!taken) return refused(taken.error());
      ASSERT_EQ(*taken, point_of(block.header));
    }
    append(std::move(op));
  }

  static constexpr uint64_t kClients = 3;
  // What a log says of a client up to an LSN, and its log time.
  static model::ClientSeries series_of(const State& state, const std::vector<Block>& log, uint64_t client,
                                       uint64_t lsn) {
    model::ClientSeries out;
    if (state.past) {
      out.now_ms = state.past->time_ms;
      if (const auto it = state.past->series.find(client); it != state.past->series.end()) out.window = it->second;
    }
    for (const auto& b : log) {
      if (b.header.last().value > lsn) break;
      out.now_ms += b.header.elapsed_ms;
      wire::RecordReader in(b.payload);
      for (model::RecordView r; in.next(r);)
        if (r.client == client && client != 0) out.window.add({r.series, model::outcome_of(r).value(), out.now_ms});
    }
    out.window.expire(out.now_ms);
    return out;
  }
  // A number that a leader would write: not there, and not below the window; and no other partition's.
  Whose somebody(uint8_t p) {
    if (random_.chance(0.2)) return {};
    const uint64_t client = 1 + random_.below(kClients);
    const auto known = series_of(now(p), now(p).log, client, UINT64_MAX).window;
    auto& highest = highest_[client];
    const uint64_t low = highest < model::kSeriesWindow ? 1 : highest - model::kSeriesWindow + 1;
    const uint64_t number =
        random_.chance(0.7) ? highest + 1 + random_.below(3) : low + random_.below(highest + 3 - low);
    if (known.find(number) != nullptr) return {};
    const auto [used, fresh] = numbers_.try_emplace({client, number}, p);
    if (!fresh && used->second != p) return {};
    highest = std::max(highest, number);
    return {client, number, random_.chance(0.5) ? model::ResultKind::length : model::ResultKind::place};
  }
  void check_series(uint8_t p) {
    const auto log = *engine->quorum_log(partition(p));
    for (uint64_t client = 1; client <= kClients; client++) {
      auto want = series_of(now(p), truth(p), client, log.visible.value);
      auto got = engine->series(partition(p), client);
      ASSERT_TRUE(got) << base::to_string(got.error());
      got->window.expire(got->now_ms);
      ASSERT_EQ(got->now_ms, want.now_ms) << "visible " << log.visible.value;
      ASSERT_EQ(got->window, want.window) << "client " << client << " visible " << log.visible.value;
      ASSERT_TRUE(got->whole);
      series_seen += want.window.entries().size();
      const auto& blocks = now(p).log;
      const auto cut = now(p).inherited == 0 ? model::Lsn{} : blocks[now(p).inherited - 1].header.last();
      for (const auto& entry : want.window.entries()) {
        inherited_series += entry.outcome.lsn <= cut ? 1 : 0;
        merged_series += entry.outcome.lsn <= now(p).start.lsn ? 1 : 0;
      }
    }
    ASSERT_EQ(engine->series(partition(p), 99)->window, model::SeriesWindow{});
  }

  void refused(const base::Error& e) {
    ASSERT_TRUE(e.code == Code::overloaded || e.code == Code::faulted) << base::to_string(e);
    if (e.code == Code::overloaded) {
      run();
      clock.at = clock.at + std::chrono::seconds(4);
      engine->tick();
      run();
    }
  }

  void append(Op op) {
    cantle::store::step(state_, op);
    ops_.push_back(std::move(op));
  }

  // A callback for the op that is about to be appended.
  Engine::Taken told(const Op& op) {
    return [this, n = ops_.size(), p = op.p, life = restarts](const base::Result<LogPoint>& point) {
      ASSERT_EQ(life, restarts);
      ASSERT_GE(n, acked_) << "out of order";
      acked_ = n + 1;
      if (point) {
        ASSERT_EQ(*point, point_of(ops_[n].block.header));
        return;
      }
      ASSERT_EQ(point.error().code, Code::cancelled);
      // A cut of it was appended behind it.
      bool was_cut = false;
      for (size_t i = n + 1; i < ops_.size(); i++)
        was_cut = was_cut ||
                  (ops_[i].what == Op::What::cut && ops_[i].p == p && ops_[i].keep.lsn < ops_[n].block.header.last());
      ASSERT_TRUE(was_cut);
    };
  }
  Engine::Done told_status() {
    return [this, n = ops_.size()](const base::Status& s) {
      ASSERT_TRUE(s);
      acked_ = std::max(acked_, n + 1);
    };
  }

  void again(uint8_t p) {
    const auto own = now(p).log.size() - now(p).inherited;
    if (own == 0) return;
    const auto& block = now(p).log[now(p).inherited + random_.below(own)];
    const auto point = point_of(block.header);
    const auto taken = take(block, [this, p, point](const auto& r) {
      if (!r) {
        EXPECT_EQ(r.error().code, Code::cancelled);
        return;
      }
      EXPECT_EQ(*r, point);
      EXPECT_GE(engine->quorum_log(partition(p))->durable.lsn, point.lsn);
    });
    if (taken) return;
    ASSERT_TRUE(taken.error().code == Code::unavailable || taken.error().code == Code::overloaded ||
                taken.error().code == Code::faulted)
        << base::to_string(taken.error());
  }

  void wrong(uint8_t p) {
    auto end = now(p).end();
    const bool gap = random_.chance(0.5);
    if (gap) end.lsn.value += 1 + random_.below(3);
    if (!gap && now(p).log.empty()) return;
    end.crc++;
    const auto taken = take(block_after(end, p, end.epoch.value + 1, 0, some_records(p)));
    ASSERT_FALSE(taken);
    const auto code = taken.error().code;
    ASSERT_TRUE(code == (gap ? Code::catching_up : Code::diverged) || code == Code::faulted || code == Code::overloaded)
        << base::to_string(taken.error());
  }

  void commit_some(uint8_t p) {
    auto& state = now(p);
    if (state.log.size() <= truth(p).size()) {
      const auto known = std::min(state.log.size(), truth(p).size());
      if (known > 0) (void)commit(truth(p)[known - 1].header.last().value, p);
      return;
    }
    const auto n = 1 + random_.below(state.log.size() - truth(p).size());
    for (uint64_t i = 0; i < n; i++) truth(p).push_back(state.log[truth(p).size()]);
    const auto lsn = truth(p).back().header.last().value;
    if (!commit(lsn, p)) return;
    state.commit = std::max(state.commit, lsn);
  }

  void cut(uint8_t p) {
    auto& state = now(p);
    if (state.log.empty() || behind(p)) return;
    const size_t keep = random_.below(state.log.size() + 1);
    const LogPoint point = state.end_of_first(keep);
    const auto committed = truth_end(p);
    if (point.lsn.value < committed) {
      // The engine knows of as much as it was told.
      if (point.lsn.value >= engine->quorum_log(partition(p))->commit.value) return;
      const auto cut = engine->truncate(partition(p), point, nullptr);
      ASSERT_FALSE(cut);
      ASSERT_EQ(cut.error().code, Code::faulted);
      return;
    }
    auto wrong_point = point;
    wrong_point.crc++;
    ASSERT_TRUE(keep == 0 || !engine->truncate(partition(p), wrong_point, nullptr));
    const bool nothing = point == state.end();  // says only of this log that it is durable
    const auto done = nothing ? Engine::Done([this, p, point](const base::Status& s) {
      ASSERT_TRUE(s);
      const auto log = *engine->quorum_log(partition(p));
      ASSERT_TRUE(log.end != point || log.durable == point);  // unless it was cut again
    })
                              : told_status();
    const auto cut = engine->truncate(partition(p), point, done);
    if (!cut) return refused(cut.error());
    if (nothing) return;
    append({Op::What::cut, p, {}, 0, point, {}});
  }

  // A block without records, as what its leader builds to begin an epoch or to cut.
  bool add_mark(uint8_t p, model::BlockKind kind, uint64_t epoch) {
    Op op{Op::What::block, p, {}, 0, {}, {}};
    const auto built = engine->build(partition(p), {kind, {epoch}, engine->quorum_log(partition(p))->commit},
                                     std::string(16, 'a'), told(op));
    if (!built) {
      refused(built.error());
      return false;
    }
    op.block.header = *built;
    op.block.payload = std::string(16, 'a');
    append(std::move(op));
    return true;
  }

  // The whole of a split, as far as a store sees it; whoever is told to ask again does.
  void divide(uint8_t p) {
    const auto all = keys(p);
    if (!fatal.empty() || behind(p) || all.size() < 2 || next_child_ > kLastChild) return;
    const auto cut_at = end_with_cut(p);
    if (!cut_at) return;
    Division division{*cut_at, all[1 + random_.below(all.size() - 1)], next_child_, 0};
    division.high = static_cast<uint8_t>(next_child_ + 1);
    next_child_ = static_cast<uint8_t>(next_child_ + 2);
    if (random_.chance(0.15)) (random_.chance(0.5) ? division.low : division.high) = 0;
    for (int tries = 0; tries < 200 && fatal.empty() && !testing::Test::HasFatalFailure(); tries++) {
      const auto child = [](uint8_t c) {
        return ChildSpec{c == 0 ? partition(250) : partition(c), {c}, c == 0 ? model::AssignmentId{} : assignment(c)};
      };
      const auto divided = engine->divide_at(partition(p), division.at, id_of<model::AttemptId>(next_child_),
                                             division.point, child(division.low), child(division.high), told_status());
      if (divided) {
        ASSERT_EQ(*divided, division.at);
        append({Op::What::divide, p, {}, 0, {}, division});
        for (const auto c : {division.low, division.high})
          if (c != 0) truth(c) = now(c).log;
        divides++;
        for (const auto c : {division.low, division.high})
          if (c != 0) check(c);
        return;
      }
      // What stood behind was cut off.
      if (const auto end = engine->quorum_log(partition(p))->end; end != now(p).end())
        append({Op::What::cut, p, {}, 0, end, {}});
      const auto code = divided.error().code;
      ASSERT_TRUE(code == Code::unavailable || code == Code::faulted) << base::to_string(divided.error());
      ASSERT_TRUE(code == Code::unavailable || !fatal.empty()) << base::to_string(divided.error());
      if (random_.chance(0.3)) clock.at = clock.at + std::chrono::milliseconds(700);
      engine->tick();
      run();
    }
    ASSERT_FALSE(fatal.empty()) << "not divided";
  }

  // A cut, behind which another leader's epoch may have begun, and more that nobody will commit.
  std::optional<LogPoint> end_with_cut(uint8_t p) {
    if (!add_mark(p, model::BlockKind::cut, std::max<uint64_t>(1, now(p).end().epoch.value))) return std::nullopt;
    truth(p) = now(p).log;
    const auto at = now(p).end();
    if (random_.chance(0.5)) (void)commit(at.lsn.value, p);
    for (uint64_t n = random_.below(3); n > 0; n--)
      if (!add_mark(p, model::BlockKind::epoch_start, ++epochs_)) return std::nullopt;
    if (random_.chance(0.4)) {
      run();
      truth(p) = now(p).log;
      (void)commit(now(p).end().lsn.value, p);
    }
    if (random_.chance(0.5)) add(p, random_.chance(0.5));
    return at;
  }

  // What the two have at their cuts is the target's, in the time of the one that is ahead.
  std::shared_ptr<const Past> past_of(const Merger& m) {
    auto past = std::make_shared<Past>();
    const auto low_ms = series_of(now(m.low), truth(m.low), 0, m.low_cut.lsn.value).now_ms;
    const auto high_ms = series_of(now(m.high), truth(m.high), 0, m.high_cut.lsn.value).now_ms;
    past->time_ms = std::max(low_ms, high_ms);
    for (const auto& [p, at, time] : {std::tuple(m.low, m.low_cut, low_ms), std::tuple(m.high, m.high_cut, high_ms)}) {
      past->rows.merge(rows_of(p, at.lsn.value));
      for (uint64_t client = 1; client <= kClients; client++) {
        auto window = series_of(now(p), truth(p), client, at.lsn.value).window;
        window.shift(past->time_ms - time);
        past->series[client].merge(window);
      }
    }
    return past;
  }

  // The whole of a merge with the neighbour above, if there is one.
  void merge(uint8_t p) {
    if (!fatal.empty() || !state_.contains(p) || behind(p) || next_child_ > kLastChild) return;
    Merger m;
    m.low = p;
    for (const auto q : logs())
      if (q != p && !interval(p).end.empty() && interval(q).begin == interval(p).end && !behind(q)) m.high = q;
    if (m.high == 0) return;
    m.target = next_child_++;
    const auto low_cut = end_with_cut(m.low);
    const auto high_cut = low_cut ? end_with_cut(m.high) : low_cut;
    if (!high_cut) return;
    m.low_cut = *low_cut;
    m.high_cut = *high_cut;
    m.past = past_of(m);
    for (int tries = 0; tries < 200 && fatal.empty() && !testing::Test::HasFatalFailure(); tries++) {
      const auto merged = engine->merge_at({partition(m.low),
                                            m.low_cut,
                                            partition(m.high),
                                            m.high_cut,
                                            id_of<model::AttemptId>(m.target),
                                            {partition(m.target), {m.target}, assignment(m.target)}},
                                           told_status());
      if (merged) {
        ASSERT_EQ(*merged, model::merged_point(m.low_cut, m.high_cut));
        append({Op::What::merge, p, {}, 0, {}, {}, m});
        truth(m.target).clear();
        merges++;
        check(m.target);
        return;
      }
      for (const auto q : {m.low, m.high})  // what stood behind was cut off
        if (const auto end = engine->quorum_log(partition(q))->end; end != now(q).end())
          append({Op::What::cut, q, {}, 0, end, {}});
      const auto code = merged.error().code;
      ASSERT_TRUE(code == Code::unavailable || !fatal.empty()) << base::to_string(merged.error());
      if (random_.chance(0.3)) clock.at = clock.at + std::chrono::milliseconds(700);
      engine->tick();
      run();
    }
    ASSERT_FALSE(fatal.empty()) << "not merged";
  }

  void promise(uint8_t p, uint64_t epoch) {
    const auto done = told_status();
    const auto sealed = engine->seal(partition(p), {epoch}, epoch > now(p).promised ? done : nullptr);
    if (!sealed) return refused(sealed.error());
    if (epoch > now(p).promised) append({Op::What::seal, p, {}, epoch, {}, {}});
  }

  void push_some() {
    for (uint64_t n = 1 + random_.below(3); n > 0; n--) {
      const auto lsn =
          Store::append(kPush, {put("p" + std::to_string(random_.below(10)), std::string(1500, 'p'), ms++)});
      if (!lsn) return refused(lsn.error());
      append({Op::What::push, kPush, {}, 0, {}, {}});
    }
  }

  void die() {
    const auto how = random_.below(3);
    if (how == 2) {  // in the middle of a sync, a little later
      syncs_left_ = static_cast<int>(random_.below(3));
      return;
    }
    restart(how == 1);
  }

  void restart(bool power) {
    const auto seen = [this](uint8_t p) { return engine->quorum_log(partition(p))->visible.value; };
    std::map<uint8_t, uint64_t> applied;
    for (const auto p : logs()) applied[p] = engine->applied(partition(p))->lsn.value;
    const auto before = state_;
    kill();
    fatal.clear();
    syncs_left_ = effects_left_ = -1;
    if (power) disk.crash(random_.chance(0.8) ? &random_ : nullptr);
    restarts++;
    ASSERT_TRUE(open());
    ASSERT_TRUE(engine->report().damaged.empty());
    find_prefix();
    for (const auto& [p, state] : before)
      if (!state_.contains(p)) truth_.erase(p);
    for (const auto p : logs()) {
      if (testing::Test::HasFatalFailure()) return;
      lost_divides += before.contains(p) ? 0 : 1;
      const auto log = *engine->quorum_log(partition(p));
      ASSERT_TRUE(log.whole);
      ASSERT_EQ(log.durable, log.end);
      ASSERT_TRUE(!applied.contains(p) || seen(p) >= applied[p]);
      // At least what the blocks say, at most what was told.
      ASSERT_GE(log.commit.value, now(p).commit)
          << says(p, log.end, log.promised.value) << " visible " << log.visible.value << " restart " << restarts;
      ASSERT_LE(log.commit.value, truth_end(p));
      now(p).commit = log.commit.value;
      check(p);
      resync(p);
    }
  }

  // A cut that was lost, and with it what a majority has: the leader has it cut again before anything else.
  void resync(uint8_t p) {
    const auto& blocks = now(p).log;
    size_t same = 0;
    while (same < std::min(blocks.size(), truth(p).size()) && blocks[same].header == truth(p)[same].header) same++;
    if (same == std::min(blocks.size(), truth(p).size())) return;
    const LogPoint keep = now(p).end_of_first(same);
    ASSERT_TRUE(engine->truncate(partition(p), keep, told_status()));
    append({Op::What::cut, p, {}, 0, keep, {}});
  }

  // Which of the ops are on the disk?
  void find_prefix() {
    States state;
    for (const uint8_t p : {uint8_t{1}, uint8_t{2}, kPush}) state[p];
    std::vector<size_t> fits;
    States found;
    std::string tried;
    const auto same = [&] {
      for (uint8_t p = 1; p <= kLastChild + 1; p++) {
        const auto log = engine->quorum_log(partition(p));
        const auto want = state.find(p);
        if (p == kPush) continue;
        if (log.has_value() != (want != state.end())) return false;
        if (log && (log->end != want->second.end() || log->promised.value != want->second.promised)) return false;
      }
      return engine->log_end(partition(kPush))->lsn.value == state[kPush].pushed;
    };
    for (size_t k = 0; k <= ops_.size(); k++) {
      if (k > 0) cantle::store::step(state, ops_[k - 1]);
      if (k < acked_) continue;
      tried += "\n" + std::to_string(k) + " ops:";
      for (const auto& [p, log] : state) tried += says(p, log.end(), log.promised);
      tried += " pushed " + std::to_string(state[kPush].pushed);
      if (!same()) continue;
      if (fits.empty()) found = state;  // what was appended and cut again may be there or not
      fits.push_back(k);
    }
    std::string there;
    for (uint8_t p = 1; p <= kLastChild + 1; p++)
      if (const auto log = engine->quorum_log(partition(p))) there += says(p, log->end, log->promised.value);
    there += " pushed " + std::to_string(engine->log_end(partition(kPush))->lsn.value);
    ASSERT_FALSE(fits.empty()) << "found:" << there << tried;
    // Commits that were only told are forgotten, those in blocks are not.
    state_ = found;
    ops_.resize(fits.front());
    acked_ = ops_.size();
  }

  static std::string says(uint8_t p, const LogPoint& end, uint64_t promised) {
    return " log " + std::to_string(p) + " " + std::to_string(end.epoch.value) + "-" + std::to_string(end.lsn.value) +
           " promised " + std::to_string(promised);
  }

  void check(uint8_t p) {
    const auto log = *engine->quorum_log(partition(p));
    const auto& blocks = now(p).log;
    ASSERT_EQ(log.end, now(p).end());
    ASSERT_EQ(log.promised.value, now(p).promised);
    std::vector<model::EpochStart> epochs;
    if (now(p).past) epochs.push_back({now(p).start.epoch, now(p).start.lsn});
    for (const auto& b : blocks)
      if (epochs.empty() || epochs.back().epoch != b.header.epoch) epochs.push_back({b.header.epoch, b.header.first});
    ASSERT_EQ(log.epochs, epochs) << "partition " << int{p} << " restart " << restarts << " inherited "
                                  << now(p).inherited << " of " << now(p).log.size() << " end " << log.end.lsn.value
                                  << " applied " << engine->applied(partition(p))->lsn.value << " visible "
                                  << log.visible.value;
    const auto rows = rows_of(p, log.visible.value);
    const auto seen = look(p);
    for (const auto& [key, value] : rows) {
      const auto it = seen.find(key);
      ASSERT_TRUE(it != seen.end() && it->second == value)
          << "partition " << int{p} << " restart " << restarts << ": " << key << " has "
          << (it == seen.end() ? "nothing" : it->second) << "\n for " << value << "\n visible " << log.visible.value
          << " commit " << log.commit.value << " end " << log.end.lsn.value;
    }
    ASSERT_EQ(seen.size(), rows.size());
    check_series(p);
    if (blocks.empty()) return;
    const uint64_t from = 1 + random_.below(blocks.back().header.last().value);
    const auto applied = engine->applied(partition(p))->lsn;
    auto part = engine->read_log(partition(p), {from}, 1 + random_.below(3000));
    if (!part) {
      const auto code = part.error().code;
      ASSERT_TRUE(code == Code::unavailable || code == Code::not_found) << base::to_string(part.error());
      ASSERT_LE(from, applied.value) << base::to_string(part.error());
      return;
    }
    size_t at = 0;
    while (blocks[at].header.last().value < from) at++;
    ASSERT_TRUE(!part->empty() || from > log.durable.lsn.value);
    for (const auto& b : *part) {
      ASSERT_LT(at, blocks.size());
      ASSERT_EQ(b.header, blocks[at].header);
      ASSERT_EQ(b.payload, blocks[at].payload);
      at++;
    }
    const auto& any = blocks[random_.below(blocks.size())].header;
    const auto point = engine->point_at(partition(p), any.last());
    ASSERT_TRUE(point == point_of(any) || (!point && any.last() <= applied));
    ASSERT_TRUE(any.records == 1 || !engine->point_at(partition(p), any.first));
  }

  Rows rows_of(uint8_t p, uint64_t lsn) {
    Rows rows;
    if (now(p).past)
      for (const auto& [key, value] : now(p).past->rows)
        if (interval(p).contains(key)) rows[key] = value;
    for (const auto& b : truth(p)) {
      if (b.header.last().value > lsn || b.header.kind != model::BlockKind::data) continue;
      wire::RecordReader in(b.payload);
      for (model::RecordView r; in.next(r);)
        if (interval(p).contains(r.key)) rows[std::string(r.key)] = std::string(r.value);
    }
    return rows;
  }

  // As all(), but the lanes stay as they are.
  Rows look(uint8_t p) {
    Rows out;
    ScanRange range;
    range.records_max = 1000000;
    auto end = engine->scan(partition(p), range, [&](std::string_view key, const Found& f) {
      out[std::string(key)] = std::string(f.value);
      return true;
    });
    EXPECT_TRUE(end.has_value());
    EXPECT_TRUE(end && end->at == engine->quorum_log(partition(p))->visible);
    return out;
  }

  base::SeededRandom random_;
  std::vector<Op> ops_;
  States state_;
  uint8_t next_child_ = kFirstChild;
  std::map<uint8_t, std::vector<Block>> truth_;               // what a majority has
  std::map<uint64_t, uint64_t> highest_;                      // number of each client
  std::map<std::pair<uint64_t, uint64_t>, uint8_t> numbers_;  // in whose log it is, or was
  size_t acked_ = 0;
  uint64_t epochs_ = 1;
  int syncs_left_ = -1, effects_left_ = -1;
};

TEST(QuorumModel, every_restart_finds_what_a_prefix_of_the_journal_makes) {
  int restarts = 0, divides = 0, merges = 0, lost = 0;
  uint64_t series = 0, inherited = 0, merged = 0;
  for (uint64_t seed = 1; seed <= 40 && !HasFatalFailure(); seed++) {
    SCOPED_TRACE(seed);
    Model model(seed);
    model.run_steps(2000);
    restarts += model.restarts;
    series += model.series_seen;
    inherited += model.inherited_series;
    merged += model.merged_series;
    divides += model.divides;
    merges += model.merges;
    lost += model.lost_divides;
  }
  EXPECT_GT(restarts, 400);
  EXPECT_GT(series, 10000U);
  EXPECT_GT(inherited, 1000U);
  EXPECT_GT(merged, 1000U);
  EXPECT_GT(divides, 200);
  EXPECT_GT(merges, 100);
  EXPECT_GT(lost, 10);
}

TEST(QuorumModel, the_power_fails_at_every_effect_around_appends_seals_cuts_and_commits) {
  int deaths = 0;
  for (uint64_t seed = 1; seed <= 20 && !HasFatalFailure(); seed++) {
    SCOPED_TRACE(seed);
    for (int n = 0; !HasFatalFailure(); n++) {
      SCOPED_TRACE(n);
      Model model(seed);
      if (!model.run_story(n)) break;
      deaths++;
      ASSERT_LT(n, 1000);
    }
  }
  EXPECT_GT(deaths, 400);
}

TEST(QuorumModel, the_power_fails_at_every_effect_around_a_merge) {
  int deaths = 0;
  for (uint64_t seed = 1; seed <= 20 && !HasFatalFailure(); seed++) {
    SCOPED_TRACE(seed);
    for (int n = 0; !HasFatalFailure(); n++) {
      SCOPED_TRACE(n);
      Model model(seed);
      if (!model.run_merge_story(n)) break;
      deaths++;
      ASSERT_LT(n, 1000);
    }
  }
  EXPECT_GT(deaths, 400);
}

TEST(QuorumModel, the_power_fails_at_every_effect_around_a_divide) {
  int deaths = 0;
  for (uint64_t seed = 1; seed <= 20 && !HasFatalFailure(); seed++) {
    SCOPED_TRACE(seed);
    for (int n = 0; !HasFatalFailure(); n++) {
      SCOPED_TRACE(n);
      Model model(seed);
      if (!model.run_divide_story(n)) break;
      deaths++;
      ASSERT_LT(n, 1000);
    }
  }
  EXPECT_GT(deaths, 400);
}

}  // namespace
}  // namespace cantle::store
