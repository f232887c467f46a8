// MoverRig: a mover on server p1 with its log, its marks and the targets it pushes to, in memory.
//
// Every RecordMark is checked against what the target really holds: a position that passes an unconfirmed record is
// noticed at once. Answers are delivered in a random order, late answers of a dropped mover never.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lib/proto/mover.h"
#include "test/unit/proto/driver_world.h"

namespace cantle::proto::test {

using namespace mover;  // NOLINT: the vocabulary under test
using model::AssignmentId;
using model::Lsn;
using model::PartitionId;
using model::ServerId;
using model::Version;

struct Rec {
  std::string key, value;
  Version version;
};
inline model::LogPoint point(uint64_t lsn) {
  return lsn == 0 ? model::LogPoint{} : model::LogPoint{{1}, {lsn}, static_cast<uint32_t>(lsn * 31 + 7)};
}
inline Version stamp(uint64_t ms, uint32_t server, uint64_t incarnation = 1) {
  return Version::make(ms, 0, {server}, {incarnation});
}
// The rig's own payload: "key version value" lines.
inline std::string line(const Rec& r) { return r.key + " " + to_string(r.version) + " " + r.value + "\n"; }
inline std::vector<Rec> lines(const std::string& payload) {
  std::vector<Rec> out;
  size_t at = 0;
  while (at < payload.size()) {
    const size_t end = payload.find('\n', at), a = payload.find(' ', at), b = payload.find(' ', a + 1);
    auto raw = base::from_hex(payload.substr(a + 1, b - a - 1));
    out.push_back({payload.substr(at, a - at), payload.substr(b + 1, end - b - 1), *Version::from_bytes(*raw)});
    at = end + 1;
  }
  return out;
}

struct Copy {  // at a target
  std::map<std::string, Version> holds;
  std::vector<model::BulkEnd> ends;
  uint64_t snapshot = 0;
  std::string filled_to;
  bool filled_all = false;
  int begins = 0, blocks = 0, digests = 0, ingests = 0, questions = 0;
  void take(const std::vector<Rec>& recs) {
    for (const auto& r : recs) holds[r.key] = std::max(holds[r.key], r.version);
  }
};

class MoverRig {
 public:
  explicit MoverRig(uint64_t seed = 1) : world(seed), random(seed * 77 + 1), seed_(seed) {
    self = ServerId{"p1"};
    for (int i = 1; i <= 5; ++i) incarnations[ServerId{"p" + std::to_string(i)}] = {1};
    restart();
  }

  // --- the story ---
  void restart() {  // replpush dies and starts again
    pending.clear();
    todo.clear();
    mover_random_ = std::make_unique<base::SeededRandom>(seed_ * 131 + ++lives_);
    mover = std::make_unique<Mover>(*mover_random_);
    feed(MarksListed{now, keys_of_marks()});
  }
  void view() { feed(ViewSeen{now, make_view()}); }
  void feed(Input in) {
    auto effects = mover->step(std::move(in));
    for (auto& e : effects) todo.push_back(std::move(e));
  }
  uint64_t append(const std::string& key, uint32_t stamper = 1, const std::string& value = "v") {
    log.push_back({key, value, stamp(1000 + ++clock_, stamper)});
    return log.size();
  }
  void logs_seen() { feed(LogsSeen{now, measured, log_states()}); }
  // Performs effects and delivers answers until nothing is left but to wait; then lets time pass, for so long.
  void run(base::Duration limit = std::chrono::seconds(30)) {
    const auto until = now + limit;
    while (now < until) {
      settle();
      now = now + std::chrono::milliseconds(50);
      feed(Tick{now});
    }
    settle();
  }
  void settle() {
    for (int i = 0; i < 200000 && (!todo.empty() || !pending.empty()); ++i) {
      if (!todo.empty()) {
        Effect e = std::move(todo.front());
        todo.pop_front();
        if (crash_in >= 0 && crash_in-- == 0) {
          restart();
          view();
          continue;
        }
        perform(std::move(e));
      } else {
        const size_t at = random.below(pending.size());
        Input in = std::move(pending[at]);
        pending.erase(pending.begin() + static_cast<ptrdiff_t>(at));
        feed(std::move(in));
      }
    }
  }
  bool run_until(const std::function<bool()>& done, base::Duration limit = std::chrono::minutes(5)) {
    const auto until = now + limit;
    settle();
    while (!done() && now < until) run(std::chrono::milliseconds(50));
    return done();
  }

  // --- who holds what ---
  const model::Assignment& on(const std::string& server) const {
    return *find_assignment(world.only(), ServerId{server});
  }
  Copy& copy(const std::string& server) { return copies[on(server).id]; }
  void hold_own() {
    held.clear();
    hold(world.only(), on("p1").id, false);
  }
  void hold(const model::Partition& p, const AssignmentId& own, bool unload) {
    model::HeldPartition h;
    h.table = "t";
    h.table_uuid = world.map->table;
    h.partition = p.id;
    h.region = p.region;
    h.assignment = own;
    h.interval = p.interval;
    h.unload = unload;
    held.push_back(h);
  }
  // Everything of the log that lies in the interval, newest version of each key.
  std::map<std::string, Version> truth(const model::Interval& interval = {}) const {
    std::map<std::string, Version> all;
    for (const auto& r : log)
      if (interval.contains(r.key)) all[r.key] = std::max(all[r.key], r.version);
    return all;
  }
  static bool holds_all(const Copy& copy, const std::map<std::string, Version>& what) {
    return std::all_of(what.begin(), what.end(), [&](const auto& kv) {
      auto it = copy.holds.find(kv.first);
      return it != copy.holds.end() && it->second >= kv.second;
    });
  }
  View make_view() const {
    View v;
    v.self = self;
    v.number = {1};
    v.incarnation = incarnation;
    v.maps["t"] = world.map;
    v.held = held;
    for (const auto& [server, inc] : incarnations) {
      model::PeerView p;
      p.server = server;
      p.incarnation = server == self ? incarnation : inc;
      p.number = {static_cast<uint32_t>(server.name[1] - '0')};
      p.live = !down.contains(server);
      v.peers.push_back(p);
    }
    return v;
  }
  std::map<PartitionId, LogState> log_states() const {
    std::map<PartitionId, LogState> out;
    for (const auto& h : held) out[h.partition] = {point(log.size()), {oldest}};
    return out;
  }

  DriverWorld world;
  base::SeededRandom random;
  std::unique_ptr<Mover> mover;
  base::Instant now{std::chrono::seconds(100)};
  ServerId self;
  model::Incarnation incarnation{1};
  std::map<ServerId, model::Incarnation> incarnations;
  std::vector<model::HeldPartition> held;
  std::vector<Rec> log;
  uint64_t oldest = 1, applied = UINT64_MAX;  // of the log, of the index
  size_t block = 4;                           // records in one batch
  std::map<AssignmentId, Copy> copies;
  std::map<MarkKey, Mark> marks;
  std::set<ServerId> down;
  std::map<ServerId, int> overloaded;  // so many blocks are refused
  double lose = 0;                     // chance that an answer is an error, after the deed or instead of it
  std::vector<Drop> drops;
  base::Status drop_answer = base::ok();
  std::vector<std::string> notes;
  std::vector<model::Delivered> delivered;  // what every target says of the other movers
  uint64_t damaged = 0;                     // LSN of a record that cannot be read
  uint64_t measured = 0, reads = 0, delivered_said = 0;
  int views_asked = 0;
  int crash_in = -1;  // replpush dies before that effect
  bool answer_views = true;
  bool rotten = false;  // targets lose what they confirmed: positions are not checked
  std::deque<Effect> todo;
  std::deque<Input> pending;
  std::function<bool(const Effect&)> swallow;  // true: the effect is not performed

 private:
  std::vector<MarkKey> keys_of_marks() const {
    std::vector<MarkKey> keys;
    for (const auto& [k, m] : marks) keys.push_back(k);
    return keys;
  }
  uint64_t applied_now() const { return std::min<uint64_t>(applied, log.size()); }
  std::map<std::string, Rec> index() const {
    std::map<std::string, Rec> out;
    for (uint64_t i = 0; i < applied_now(); ++i) {
      auto& slot = out[log[i].key];
      if (slot.version < log[i].version) slot = log[i];
    }
    return out;
  }
  base::Error trouble(const ServerId& to, bool* instead) {
    *instead = true;
    if (down.contains(to)) return {base::Code::unavailable, "connection refused"};
    if (lose > 0 && random.chance(lose)) {
      *instead = random.chance(0.5);
      return {base::Code::outcome_unknown, "the connection broke"};
    }
    return {base::Code::faulted, ""};
  }
  // The answer of a call: what `act` gives, or the trouble of the way.
  template <class T>
  base::Result<T> call(const ServerId& to, const std::function<base::Result<T>()>& act) {
    bool instead = false;
    base::Error e = trouble(to, &instead);
    if (e.text.empty()) return act();
    if (!instead) (void)act();
    return base::fail(e);
  }

  void perform(Effect effect) {
    if (swallow && swallow(effect)) return;
    std::visit([&](auto& e) { perform(e); }, effect);
  }
  void perform(LoadMark& e) {
    MarkLoaded in{now, e.stream, e.ticket, {}};
    for (const auto& k : e.keys)
      if (auto it = marks.find(k); it != marks.end()) in.found.push_back(*it);
    pending.emplace_back(std::move(in));
  }
  void perform(RecordMark& e) {
    marks[e.key] = e.mark;
    if (rotten) return;
    // The oracle: what a position says is confirmed is there.
    const Copy& c = copies[e.key.target];
    model::Interval interval = interval_of(e.target_partition);
    for (const auto& h : held)
      if (h.assignment == e.key.own) interval = interval.intersect(h.interval);
    for (uint64_t i = 0; i < e.mark.at.lsn.value; ++i) {
      const Rec& r = log[i];
      if (!interval.contains(r.key)) continue;
      auto it = c.holds.find(r.key);
      EXPECT_TRUE(it != c.holds.end() && it->second >= r.version)
          << "the position says LSN " << e.mark.at.lsn.value << ", and " << r.key << " (LSN " << i + 1
          << ") is not there";
    }
  }
  model::Interval interval_of(const PartitionId& id) const {
    for (const auto& p : world.map->partitions) {
      if (p.id == id) return p.interval;
      if (p.split && p.split->low.id == id) return {p.interval.begin, p.split->point};
      if (p.split && p.split->high.id == id) return {p.split->point, p.interval.end};
    }
    return {"~none", "~none"};
  }
  void perform(ForgetMark& e) { marks.erase(e.key); }
  void perform(Measure& e) {
    measured = e.number;
    pending.emplace_back(LogsSeen{now, measured, log_states()});
  }
  void perform(RefreshView&) {
    ++views_asked;
    if (answer_views) pending.emplace_back(ViewSeen{now, make_view()});
  }
  void perform(ReadLog& e) {
    LogRead in;
    in.now = now;
    in.stream = e.stream;
    in.ticket = e.ticket;
    if (e.after.lsn.value + 1 < oldest)
      in.end = ReadEnd::retired;
    else if (e.after.lsn.value > log.size() || e.after != point(e.after.lsn.value)) {
      in.end = ReadEnd::not_contained;
      in.restart = point(std::min<uint64_t>(e.after.lsn.value - 1, log.size()));
    } else {
      std::string own;
      uint32_t count = 0;
      uint64_t at = e.after.lsn.value;
      const uint64_t end = e.until.value == 0 ? log.size() : e.until.value;
      ++reads;
      for (; at < end && at < e.after.lsn.value + block; ++at) {
        const Rec& r = log[at];
        if (at + 1 == damaged) {
          in.batch.gap = {at + 1};
          continue;
        }
        if (!e.interval.contains(r.key)) continue;
        if (r.version.server() == model::ServerNumber{1} && !e.offer_own) {
          own += line(r), ++count;
          if (in.batch.own_oldest.none()) in.batch.own_oldest = r.version;
          in.batch.before_oldest = std::exchange(in.batch.last_oldest, r.version);  // each record is a block
        } else if (std::find(e.await.begin(), e.await.end(), r.version.server()) != e.await.end())
          await(&in.batch.awaited, r.version);
        else
          in.batch.foreign.push_back({{r.key, r.version}, line(r)});
      }
      in.batch.own = {std::make_shared<const std::string>(own), count};
      in.batch.through = point(at);
    }
    pending.emplace_back(std::move(in));
  }
  static void await(std::vector<Awaited>* all, const Version& v) {
    for (auto& a : *all)
      if (a.newest.server() == v.server()) return a.newest = v, void(++a.count);
    all->push_back({v, v, 1});
  }
  // The oracle: what is said to be there is.
  void check_said(const model::Envelope& e, const std::optional<model::Delivered>& said) {
    if (!said || rotten) return;
    ++delivered_said;
    for (const Rec& r : log)
      if (interval_of(e.partition).contains(r.key) && r.version.server() == said->from.server() &&
          said->from <= r.version && r.version < said->before) {
        EXPECT_GE(copies[e.to_assignment].holds[r.key], r.version) << r.key << " is said to be there, and is not";
      }
  }
  void perform(OpenSnapshot& e) { pending.emplace_back(SnapshotOpened{now, e.stream, e.ticket, point(applied_now())}); }
  void perform(ReadSnapshot& e) {
    const auto all = index();
    SnapshotChunk chunk;
    std::string bytes;
    auto it = e.after_key.empty() ? all.begin() : all.upper_bound(e.after_key);
    for (; it != all.end() && chunk.records.count < block; ++it) {
      if (!e.interval.contains(it->first)) continue;
      bytes += line(it->second);
      ++chunk.records.count;
      chunk.through_key = it->first;
    }
    chunk.last = it == all.end();
    chunk.records.bytes = std::make_shared<const std::string>(bytes);
    pending.emplace_back(SnapshotRead{now, e.stream, e.ticket, std::move(chunk)});
  }
  void perform(SendBegin& e) {
    pending.emplace_back(
        Began{now, e.stream, e.ticket, call<model::BulkBeginReply>(e.to, [&]() -> base::Result<model::BulkBeginReply> {
                Copy& c = copies[e.stream.target];
                ++c.begins;
                model::BulkBeginReply r;
                r.incarnation = incarnations[e.to];
                if (e.message.kind == model::BulkKind::snapshot) {
                  if (c.snapshot != e.message.snapshot)
                    c.snapshot = e.message.snapshot, c.filled_to.clear(), c.filled_all = false;
                  r.filled_to = c.filled_to;
                  r.filled_all = c.filled_all;
                }
                return r;
              })});
  }
  void perform(SendBlock& e) {
    if (int& n = overloaded[e.to]; n > 0) {
      --n;
      pending.emplace_back(
          Confirmed{now, e.stream, e.ticket, base::fail(base::Code::overloaded, "the overlay is full")});
      return;
    }
    check_said(e.message.envelope, e.message.delivered);
    pending.emplace_back(Confirmed{now, e.stream, e.ticket,
                                   call<base::Nothing>(e.to,
                                                       [&]() -> base::Status {
                                                         Copy& c = copies[e.stream.target];
                                                         const auto recs = lines(*e.records);
                                                         EXPECT_EQ(recs.size(), e.message.count);
                                                         if (e.message.kind == model::BulkKind::snapshot) {
                                                           ++c.ingests;
                                                           if (c.snapshot != e.message.snapshot)
                                                             return base::fail(base::Code::conflict,
                                                                               "another snapshot");
                                                           if (!recs.empty() && recs.front().key <= c.filled_to)
                                                             return base::ok();
                                                           c.filled_to = std::max(c.filled_to, e.message.through_key);
                                                           c.filled_all = c.filled_all || e.message.last;
                                                         } else {
                                                           ++c.blocks;
                                                         }
                                                         c.take(recs);
                                                         return base::ok();
                                                       }),
                                   delivered});
  }
  base::Result<model::DigestReply> digest(const AssignmentId& target, const model::Digest& m) {
    Copy& c = copies[target];
    ++c.digests;
    model::DigestReply r;
    check_said(m.envelope, m.delivered);
    r.delivered = delivered;
    if (m.entries.empty()) return ++c.questions, --c.digests, r;
    for (uint32_t i = 0; i < m.entries.size(); ++i) {
      auto it = c.holds.find(m.entries[i].key);
      if (it == c.holds.end() || it->second < m.entries[i].version) r.lacking.push_back(i);
    }
    return r;
  }
  void perform(SendDigest& e) {
    pending.emplace_back(Digested{now, e.stream, e.ticket,
                                  call<model::DigestReply>(e.to, [&] { return digest(e.stream.target, e.message); })});
  }
  void perform(SendEnd& e) {
    pending.emplace_back(EndTold{now, e.stream, e.ticket, call<base::Nothing>(e.to, [&]() -> base::Status {
                                   copies[e.stream.target].ends.push_back(e.message);
                                   return base::ok();
                                 })});
  }
  void perform(ReadProof& e) {
    ProofChunk chunk;
    chunk.applied = {applied_now()};
    const auto all = index();
    auto it = e.after_key.empty() ? all.begin() : all.upper_bound(e.after_key);
    for (; it != all.end() && chunk.entries.size() < 3; ++it) {
      if (!e.interval.contains(it->first)) continue;
      chunk.entries.push_back({it->first, it->second.version});
      chunk.through_key = it->first;
    }
    chunk.last = it == all.end();
    pending.emplace_back(ProofRead{now, e.own, e.ticket, std::move(chunk)});
  }
  void perform(AskProof& e) {
    pending.emplace_back(Proved{now, e.own, e.ticket, call<model::DigestReply>(e.to, [&] {
                                  return digest(e.message.envelope.to_assignment, e.message);
                                })});
  }
  void perform(Drop& e) {
    drops.push_back(e);
    if (drop_answer) std::erase_if(held, [&](const auto& h) { return h.assignment == e.own; });
    pending.emplace_back(Dropped{now, e.own, e.ticket, drop_answer});
  }
  void perform(Note& e) { notes.push_back(e.event); }

  std::unique_ptr<base::SeededRandom> mover_random_;
  uint64_t seed_, lives_ = 0, clock_ = 0;
};

}  // namespace cantle::proto::test
