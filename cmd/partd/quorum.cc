#include "cmd/partd/quorum.h"

#include <algorithm>

#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/testing.h"
#include "lib/wire/codec.h"

namespace cantle::partd {

using base::Code;
using base::Level;
using namespace proto::quorum_tables;
namespace election = proto::election;

namespace {
constexpr auto every = [](const auto&) { return true; };
}  // namespace

Quorum::Quorum(const QuorumParts& parts, Self self, QuorumHooks hooks)
    : loop_(parts.loop),
      engine_(parts.engine),
      session_(parts.session),
      layout_(parts.layout),
      links_(parts.links),
      self_(self.server),
      incarnation_(parts.incarnation),
      hooks_(std::move(hooks)),
      tables_(std::move(self)),
      beacons_(self_, incarnation_, parts.loop.refresh_now()),
      governments_(session_, layout_),
      timer_(parts.loop, [this] { turn(); }),
      hand_over_timer_(parts.loop, [this] { hand_over_more(); }),
      old_timer_(parts.loop, [this] { read_old(); }) {}

Quorum::~Quorum() { *alive_ = false; }

// --- tables and copies -----------------------------------------------------------------------------

void Quorum::map_came(const std::string& name, std::shared_ptr<const model::Metadata> map) {
  perform(tables_.map_read(at(), name, std::move(map)));
  beacons_.set_peers(tables_.partners());
  plan_turn();
}

void Quorum::table_dropped(const model::TableUuid& table) { perform(tables_.table_dropped(table)); }

void Quorum::perform(Effects effects) {
  for (auto& effect : effects) std::visit([this](auto& e) { perform(e); }, effect);
}

void Quorum::perform(Create& e) {
  base::log(Level::notice, "begin",
            {{"table", e.table},
             {"partition", to_string(e.copy.partition)},
             {"assignment", to_string(e.copy.assignment)},
             {"interval", to_string(e.copy.interval)}});
  const auto done = [this, assignment = e.copy.assignment](base::Status status) {
    CRASH_POINT("partd.quorum_created");
    perform(tables_.created(at(), assignment, status));
    look_around_soon();
  };
  store::TenureSpec spec{
      {e.copy.partition, e.copy.assignment}, e.copy.table, e.copy.region, e.copy.interval, store::LogMode::quorum};
  spec.whole = e.copy.whole;
  const auto begun = engine_.create(spec, done);
  if (begun) return;
  loop_.defer([done, status = begun.error().code == Code::exists ? base::ok() : begun] { done(status); });
}

void Quorum::perform(Begin& e) {
  const auto log = engine_.quorum_log(e.copy.partition);
  if (!log) {
    base::log(Level::error, "replica", {{"partition", to_string(e.copy.partition)}, {"error", "no log of it is here"}});
    return;
  }
  proto::quorum::CommittedState state;
  state.value = [this,
                 id = e.copy.partition](std::string_view key) -> base::Result<std::optional<proto::quorum::HeldValue>> {
    TRY_ASSIGN(const auto found, engine_.get(id, key));
    if (!found || found->deleted) return std::optional<proto::quorum::HeldValue>();
    return proto::quorum::HeldValue{found->version, found->value};
  };
  state.series = [this, id = e.copy.partition](uint64_t client) { return engine_.series(id, client); };
  state.log_time = [this, id = e.copy.partition] { return engine_.log_time_ms(id); };
  auto r = std::make_unique<Replica>(*this, std::move(state));
  r->partition = e.copy.partition;
  r->assignment = e.copy.assignment;
  r->table = e.copy.table;
  r->region = e.copy.region;
  r->name = e.table;
  r->distribution = coord::distribution(e.keyspace, e.table);
  proto::quorum::ReplicaSelf self;
  self.who = {r->partition, r->assignment, self_, incarnation_, log->promised, model::token_of(log->end),
              log->known,   log->hole};
  self.end = log->end;
  self.commit = log->commit;
  self.epochs = log->epochs;
  self.cuts = log->cuts;
  self.snapshot = engine_.refilled(e.copy.partition);
  self.gap = engine_.gap(e.copy.partition);
  self.kept_room = &kept_room_;
  base::log(Level::info, "replica",
            {{"table", e.table},
             {"partition", to_string(r->partition)},
             {"epoch", log->end.epoch.value},
             {"lsn", log->end.lsn.value},
             {"commit", log->commit.value},
             {"promised", log->promised.value}});
  r->machine = std::make_unique<proto::QuorumReplica>(self, beacons_, *r);
  listen(r->distribution);
  by_assignment_[r->assignment] = r.get();
  by_region_[{r->distribution, r->region}] = r->assignment;
  wake_at(*r, {});
  replicas_[r->partition] = std::move(r);
  look_around_soon();
}

void Quorum::perform(Tell& e) {
  if (auto* r = find(e.partition)) run(*r, [&](Out& out) { r->machine->members(at(), std::move(e.members), out); });
}

void Quorum::perform(ShowReshape& e) {
  if (auto* r = find(e.partition)) run(*r, [&](Out& out) { r->machine->reshape_seen(at(), e.seen, out); });
}

void Quorum::perform(Divide& e) {
  const auto partition = e.parent;
  const auto done = [this, alive = alive_, partition](const base::Status& status) {
    if (!*alive) return;
    CRASH_POINT("partd.quorum_divided");
    perform(tables_.divided(at(), partition, status));
    beacons_.set_peers(tables_.partners());
    plan_turn();
  };
  const auto child = [](const Child& c) { return store::ChildSpec{c.partition, c.region, c.assignment}; };
  CRASH_POINT("partd.before_divide");
  const auto at_point = engine_.divide_at(partition, e.cut, e.attempt, e.point, child(e.low), child(e.high), done);
  if (!at_point) return loop_.defer([done, error = at_point.error()] { done(base::fail(error)); });
  base::log(Level::notice, "divide",
            {{"partition", to_string(partition)},
             {"cut_lsn", e.cut.lsn.value},
             {"low", to_string(e.low.partition)},
             {"high", to_string(e.high.partition)}});
}

void Quorum::perform(Merge& e) {
  const auto done = [this, alive = alive_, low = e.low](const base::Status& status) {
    if (!*alive) return;
    CRASH_POINT("partd.quorum_merged");
    perform(tables_.merged(at(), low, status));
    beacons_.set_peers(tables_.partners());
    plan_turn();
  };
  CRASH_POINT("partd.before_merge");
  const auto start = engine_.merge_at(
      {e.low, e.low_cut, e.high, e.high_cut, e.attempt, {e.target.partition, e.target.region, e.target.assignment}},
      done);
  if (!start) return loop_.defer([done, error = start.error()] { done(base::fail(error)); });
  base::log(Level::notice, "merge",
            {{"low", to_string(e.low)},
             {"high", to_string(e.high)},
             {"target", to_string(e.target.partition)},
             {"lsn", start->lsn.value}});
}

void Quorum::perform(End& e) {
  auto node = replicas_.extract(e.partition);
  if (node.empty()) return;
  auto& r = *node.mapped();
  by_assignment_.erase(r.assignment);
  due_.erase({r.due, r.assignment});
  // Whoever waits for it is told: it leads no more, and answers nobody.
  Out out;
  r.machine->resign(at(), {}, "its copy takes no further part", out);
  for (auto& effect : out) {
    auto* reply = std::get_if<proto::quorum::Reply>(&effect);
    if (reply == nullptr) continue;
    if (e.into.value != 0 && !reply->result && reply->result.error().code == Code::not_leader) {
      base::Error stale(Code::stale_route, "the partition was split or merged");
      stale.txnseq = e.into.value;
      reply->result = base::fail(std::move(stale));
    }
    perform(r, *reply);
  }
  for (const auto& token : r.machine->election().standing())
    governments_.forget_vote(r.distribution, r.region, token, self_);
  if (const auto it = by_region_.find({r.distribution, r.region}); it != by_region_.end() && it->second == r.assignment)
    by_region_.erase(it);
  beacons_.forget(e.partition);
  release_held(e.partition);
}

void Quorum::perform(SetAside& e) {
  base::log(Level::notice, "set-aside",
            {{"partition", to_string(e.partition)}, {"assignment", to_string(e.assignment)}});
  const auto done = [](const base::Status& s) {
    if (!s) base::log(Level::error, "set-aside", {{"error", to_string(s.error())}});
  };
  if (const auto begun = engine_.set_aside({e.partition, e.assignment}, e.whole, done); !begun) done(begun);
}

void Quorum::perform(Drop& e) {
  base::log(Level::notice, "drop",
            {{"partition", to_string(e.partition)}, {"assignment", to_string(e.assignment)}, {"why", e.why}});
  const auto done = [this, assignment = e.assignment](base::Status status) {
    CRASH_POINT("partd.quorum_dropped");
    perform(tables_.dropped(at(), assignment, status));
  };
  if (const auto begun = engine_.drop({e.partition, e.assignment}, done); !begun)
    loop_.defer([done, begun] { done(begun.error().code == Code::not_found ? base::ok() : begun); });
}

void Quorum::perform(Settle& e) {
  engine_.drain([this, alive = alive_, table = e.table, txnseq = e.txnseq](const base::Status& s) {
    if (!*alive || !s) return;
    perform(tables_.settled(table, txnseq));
  });
}

void Quorum::perform(PublishObserved& e) { hooks_.observed(e.table, e.txnseq); }
void Quorum::perform(Remember& e) { hooks_.remember(e.seen); }
void Quorum::perform(Say& e) { base::log(e.level, e.what, {{"text", e.text}}); }
void Quorum::perform(Exit& e) { hooks_.fail({Code::identity, e.text}); }

Quorum::Replica* Quorum::find(const model::PartitionId& partition) {
  const auto it = replicas_.find(partition);
  return it == replicas_.end() ? nullptr : it->second.get();
}
const Quorum::Replica* Quorum::find(const model::PartitionId& partition) const {
  return const_cast<Quorum*>(this)->find(partition);
}
Quorum::Replica* Quorum::find(const model::AssignmentId& assignment) {
  const auto it = by_assignment_.find(assignment);
  return it == by_assignment_.end() ? nullptr : it->second;
}

// --- turns -----------------------------------------------------------------------------------------

void Quorum::run(const model::AssignmentId& assignment, const std::function<void(Replica&, Out&)>& fn) {
  if (auto* r = find(assignment)) run(*r, [&](Out& out) { fn(*r, out); });
}

// When thousands of copies come or go at once, once.
void Quorum::look_around_soon() {
  if (std::exchange(look_around_planned_, true)) return;
  loop_.defer([this, alive = alive_] {
    if (!*alive) return;
    look_around_planned_ = false;
    beacons_.set_peers(tables_.partners());
    plan_turn();
  });
}

// A replica is looked at when it said that it wants to be, or earlier; what it says later than that is found out then.
void Quorum::wake_at(Replica& r, base::Instant next) {
  if (next >= r.due) return;
  due_.erase({r.due, r.assignment});
  r.due = next;
  due_.insert({r.due, r.assignment});
}

void Quorum::tick_due() {
  std::vector<model::AssignmentId> ids;
  while (!due_.empty() && due_.begin()->first <= at()) {
    ids.push_back(due_.begin()->second);
    due_.erase(due_.begin());
  }
  for (const auto& id : ids) {
    auto* r = find(id);
    if (r == nullptr) continue;
    r->due = kNever;
    if (at() >= r->machine->next_tick())
      run(*r, [&](Out& out) { r->machine->tick(at(), out); });
    else
      wake_at(*r, r->machine->next_tick());
  }
}

void Quorum::run_each(const std::function<bool(const Replica&)>& which, const std::function<void(Replica&, Out&)>& fn) {
  std::vector<model::AssignmentId> ids;
  for (const auto& [partition, r] : replicas_)
    if (which(*r)) ids.push_back(r->assignment);
  for (const auto& id : ids) run(id, fn);
}

// Effects are performed in order; what they lead to comes behind them.
void Quorum::run(Replica& r, const std::function<void(Out&)>& fn) {
  const auto partition = r.partition;
  Out out;
  fn(out);
  for (auto& e : out) effects_.emplace_back(r.assignment, std::move(e));
  wake_at(r, r.machine->next_tick());
  if (std::exchange(performing_, true)) return;
  while (!effects_.empty()) {
    auto [assignment, effect] = std::move(effects_.front());
    effects_.pop_front();
    if (auto* to = find(assignment)) std::visit([&](auto& e) { perform(*to, e); }, effect);
  }
  performing_ = false;
  if (auto* now = find(partition); now != nullptr && now->held > 0) release_held(partition);
}

void Quorum::turn() {
  planned_ = {};
  for (auto& send : beacons_.turn(now()))
    links_.call(send.to, "quorum.beacon", wire::encode(send.beacon), kBeaconTimeout,
                [this](base::Result<std::string_view> answer) {
                  if (!answer) return;
                  const auto reply = wire::decode<model::QuorumBeaconReply>(*answer);
                  if (!reply) return;
                  beacons_.answered(now(), *reply);
                  news();
                });
  news();
  tick_due();
  perform(tables_.tick(at()));
  for (const auto& partition : tables_.lagging())
    if (engine_.visible(partition).value != 0) perform(tables_.filled(partition));
  expire_held();
  plan_turn();
}

void Quorum::plan_turn() {
  if (idle()) return timer_.stop();
  auto next = at() + kTurnMost;
  if (!due_.empty()) next = std::min(next, due_.begin()->first);
  next = std::max(next, at() + kTurnLeast);
  if (timer_.active() && planned_ <= next) return;
  planned_ = next;
  timer_.start(next - at());
}

// What thousands of releases bring one by one is looked at once for all that came meanwhile, and not most of the time.
void Quorum::news() {
  const auto begun = loop_.refresh_now();
  if (begun < next_news_ || !beacons_.take_news()) return;
  run_each(every, [&](Replica& r, Out& out) { r.machine->elect(at(), election::Tick{}, out); });
  const auto ended = loop_.refresh_now();
  next_news_ = ended + kNewsShare * (ended - begun);
}

// --- the coordination service ----------------------------------------------------------------------

void Quorum::listen(const std::string& distribution) {
  if (!listening_.insert(distribution).second) return;
  governments_.listen(distribution, [this, distribution](const coord::Ring& ring) { rung(distribution, ring); });
}

// A table's bell names those of its partitions that it rings for, few of thousands; an old one, or many, name nobody.
void Quorum::rung(const std::string& distribution, const coord::Ring& ring) {
  if (ring.any())
    return run_each([&](const Replica& r) { return r.distribution == distribution; },
                    [&](Replica& r, Out& out) { r.machine->elect(at(), election::Rung{}, out); });
  const auto tell = [&](model::Region region, const election::Input& in) {
    if (const auto it = by_region_.find({distribution, region}); it != by_region_.end())
      run(it->second, [&](Replica& r, Out& out) { r.machine->elect(at(), in, out); });
  };
  for (const auto& [region, vote] : ring.votes) tell(region, election::VoteHeard{vote});
  for (const auto& region : ring.governments) tell(region, election::Rung{true});
}

void Quorum::coord_event(coord::Event event) {
  if (event == coord::Event::connected) return governments_.connected();
  if (event != coord::Event::expired) return;
  run_each(every, [&](Replica& r, Out& out) { r.machine->elect(at(), election::VotesLost{}, out); });
}

void Quorum::link_changed(const model::ServerId& server, bool up) {
  if (up) return;
  run_each(every, [&](Replica& r, Out& out) { r.machine->link_lost(at(), server, out); });
}

// --- questions and the end -------------------------------------------------------------------------

std::vector<Quorum::ReplicaStatus> Quorum::replicas() const {
  std::vector<ReplicaStatus> all;
  for (auto& copy : tables_.copies()) {
    ReplicaStatus s;
    const auto& held = copy.held;
    if (const auto* r = find(held.partition); r != nullptr && r->assignment == held.assignment)
      s.replica = r->machine->status();
    s.copy = std::move(copy);
    all.push_back(std::move(s));
  }
  return all;
}

// What it is at, in the words of the design. A follower is level when it shows all that it was told of as committed.
std::string_view Quorum::run_state(const Replica& r, const proto::quorum::ReplicaStatus& status) const {
  if (draining_) return "shutdown";
  if (status.role == "faulted") return "faulted";
  if (status.role == "voter") return "seek";
  if (status.role == "leader") return status.serving ? "join" : "synchronize";
  return r.machine->may_read_session(loop_.now(), visible(r), {}) ? "join" : "synchronize";
}

std::optional<model::StatusQuorum> Quorum::status_of(const model::PartitionId& partition) const {
  const auto* r = find(partition);
  if (r == nullptr) return std::nullopt;
  const auto now = loop_.refresh_now();
  const auto ms = [](base::Duration d) { return static_cast<uint64_t>(std::max<int64_t>(0, base::to_ms(d))); };
  const auto status = r->machine->status();
  model::StatusQuorum q;
  q.epoch = status.epoch;
  q.leader = status.role == "leader" ? self_ : status.leader;
  q.commit = status.commit;
  q.doing = r->machine->parked() ? "is parked by the cut of a split" : status.doing;
  q.run = run_state(*r, status);
  if (const auto log = engine_.quorum_log(partition)) {
    q.promised = log->promised;
    q.whole = log->whole;
  }
  if (status.role == "leader") {
    q.since_ms = ms(now - status.since);
    if (r->machine->may_read(now)) q.lease_ms = ms(r->machine->election().lease_until() - now);
  } else {
    q.heard_ms = ms(now - r->machine->word_at(now));
  }
  for (const auto& peer : status.peers)
    q.replicas.push_back(
        {peer.hop.server, std::string(proto::quorum::Leader::word(peer.state)), peer.acked.lsn, peer.why});
  return q;
}

size_t Quorum::leading() const {
  return static_cast<size_t>(std::count_if(replicas_.begin(), replicas_.end(), [](const auto& r) {
    return r.second->machine->election().leads().has_value();
  }));
}

std::optional<bool> Quorum::leads(const model::PartitionId& partition) const {
  const auto* r = find(partition);
  if (r == nullptr) return std::nullopt;
  return r->machine->may_read(loop_.refresh_now()).has_value();
}

// New writes are refused from here on, those in hand end; then each partition goes to the replica that has most of its
// log, which need not wait for a suspicion.
void Quorum::hand_over(base::Instant deadline, std::function<void()> done) {
  draining_ = true;
  handed_over_ = std::move(done);
  hand_over_until_ = deadline;
  hand_over_more();
}

void Quorum::hand_over_more() {
  const auto now = loop_.refresh_now();
  const bool late = now >= hand_over_until_;
  if (!requests_.empty() && !late && now < hand_over_until_ - kDrainMost) return hand_over_timer_.start(kDrainLook);
  if (leading() == 0 || late) return std::exchange(handed_over_, [] {})();
  run_each([](const Replica& r) { return r.machine->election().leads().has_value(); },
           [&](Replica& r, Out& out) {
             const auto status = r.machine->status();
             const proto::quorum::Leader::PeerStatus* best = nullptr;
             for (const auto& peer : status.peers)
               if (peer.state == proto::quorum::Leader::PeerState::joined &&
                   (best == nullptr || peer.acked.lsn > best->acked.lsn))
                 best = &peer;
             CRASH_POINT("partd.hand_over");
             r.machine->resign(at(), best == nullptr ? model::AssignmentId{} : best->hop.assignment, "the server stops",
                               out);
           });
  hand_over_timer_.start(kDrainLook);
}

}  // namespace cantle::partd
