#include "test/sim/election_node.h"

#include <algorithm>

#include "lib/base/check.h"

namespace cantle::sim {

using namespace proto::election;

namespace {
constexpr base::Duration kTurnEvery = std::chrono::milliseconds(50);
constexpr Duration kCallTimeout = 400ms, kWriteEvery = 60ms, kDiskStands = 1s;

model::LogToken token_of_log(const ToyLog& log) {
  if (log.empty()) return {};
  return {{log.back().epoch}, {log.size()}};
}
}  // namespace

ElectionNode::ElectionNode(ElectionWorld& world, ElectionHost& host, Network& network, CoordService& coord)
    : world_(world), host_(host), network_(network), beacons_(host.id, {host.starts}, host.process.now()) {
  std::set<model::ServerId> peers;
  for (const auto& other : world_.hosts()) peers.insert(other->id);
  beacons_.set_peers(std::move(peers));
  for (size_t p = 0; p < world_.partitions(); ++p) {
    auto r = std::make_unique<Replica>();
    const auto& copy = host_.copies[p];
    r->partition = p;
    for (const auto& v : world_.voters(p))
      if (v.server == host_.id) r->assignment = v.assignment;
    r->log = copy.log;
    r->election = std::make_unique<proto::Election>(
        Self{world_.partition_id(p), r->assignment, host_.id, {host_.starts}, copy.promised, token_of_log(copy.log)},
        beacons_);
    replicas_.push_back(std::move(r));
  }
  session_ = coord.open(host_.process);
  session_->on_event([this](coord::Event event) {
    if (event == coord::Event::expired)
      for (auto& r : replicas_) step(*r, VotesLost{});
    if (event == coord::Event::connected) governments_->connected();
  });
  governments_ = std::make_unique<coord::Governments>(*session_, world_.layout());
  governments_->listen(ElectionWorld::kDistribution, [this](const coord::Ring& ring) {
    for (auto& r : replicas_) {
      const auto own = ElectionWorld::region(r->partition);
      if (ring.any()) step(*r, Rung{});
      for (const auto& [region, vote] : ring.votes)
        if (region == own) step(*r, VoteHeard{vote});
      for (const auto& region : ring.governments)
        if (region == own) step(*r, Rung{true});
    }
  });
  network_.listen(host_.process, [this](const std::string&, const std::any& request, Network::Reply reply) {
    serve(request, std::move(reply));
  });
  turn();
}

ElectionNode::~ElectionNode() = default;

// --- turns -------------------------------------------------------------------------------------------------------

void ElectionNode::turn() {
  host_.process.after(kTurnEvery, [this] { turn(); });
  for (const auto& send : beacons_.turn(now()))
    network_.call(host_.process, election_address(send.to), send.beacon, kCallTimeout, [this](Network::Answer answer) {
      if (!answer) return;
      beacons_.answered(now(), std::any_cast<const model::QuorumBeaconReply&>(*answer));
      if (beacons_.take_news()) think();
    });
  beacons_.take_news();
  const bool writes = now().at >= next_write_;
  if (writes) next_write_ = now().at + kWriteEvery;
  for (auto& r : replicas_) {
    const bool moving = r->disk.empty() || r->disk.front() + kDiskStands > now().at;
    step(*r, LogState{durable_token(*r), true, moving});
    if (r->leads.value == 0) continue;
    if (writes) append_own(*r);
    push(*r);
  }
}

void ElectionNode::think() {
  for (auto& r : replicas_) step(*r, Tick{});
}

void ElectionNode::step(Replica& r, const Input& input) {
  if (!host_.process.alive()) return;
  for (const auto& effect : r.election->step(now().at, input))
    std::visit([&](const auto& e) { perform(r, e); }, effect);
}

void ElectionNode::serve(const std::any& request, Network::Reply reply) {
  if (const auto* b = std::any_cast<model::QuorumBeacon>(&request)) {
    if (const auto answer = beacons_.heard(now(), *b)) reply(std::any(*answer));
    if (beacons_.take_news()) think();
  } else if (const auto* q = std::any_cast<model::QuorumSuspect>(&request)) {
    auto& r = *replicas_[*world_.partition_of(q->envelope.partition)];
    reply(std::any(r.election->answer(now().at, *q)));
  } else if (const auto* released = std::any_cast<model::QuorumRelease>(&request)) {
    const auto& from = released->envelope;
    beacons_.released(now(), from.from, from.incarnation, {from.partition, released->epoch, released->successor});
    think();
  } else if (const auto* o = std::any_cast<ToyOpen>(&request)) {
    reply(std::any(open(*o)));
  } else if (const auto* a = std::any_cast<ToyAppend>(&request)) {
    append(*a, std::move(reply));
  }
}

// --- the toy log -------------------------------------------------------------------------------------------------

model::LogToken ElectionNode::durable_token(const Replica& r) const {
  return token_of_log(host_.copies[r.partition].log);
}

// One disk: what is asked for first is durable first.
void ElectionNode::write(Replica& r, std::function<void(ElectionHost::Copy&)> change, Fn then) {
  if (!host_.process.effect()) return;
  const auto start = std::max({disk_free_, now().at, host_.disk_stands_until});
  disk_free_ = start + 200us + Duration(static_cast<int64_t>(host_.process.random().below(3'000'000)));
  r.disk.push_back(now().at);
  host_.process.after(disk_free_ - now().at, [this, &r, change = std::move(change), then = std::move(then)] {
    r.disk.pop_front();
    change(host_.copies[r.partition]);
    then();
  });
}

ToyReply ElectionNode::open(const ToyOpen& o) {
  auto& r = *replicas_[o.partition];
  if (!r.election->admits(o.epoch)) return {false, r.election->floor(), {host_.starts}, 0};
  step(r, LeaderMet{o.epoch, o.leader, o.server, o.life});
  if (r.election->follows() < o.epoch) return {false, {}, {host_.starts}, 0};  // of an older life
  r.pipe = o.epoch;
  return {true, {}, {host_.starts}, 0};
}

void ElectionNode::append(const ToyAppend& a, Network::Reply reply) {
  auto& r = *replicas_[a.from.partition];
  const ToyReply refused{false, r.election->floor(), {host_.starts}, 0};
  if (!r.election->admits(a.from.epoch) || r.pipe != a.from.epoch || r.leads.value != 0)
    return reply(std::any(refused));
  const auto& sent = *a.log;
  // A leader's log only grows: what is shorter is late.
  const bool late = sent.size() < r.log.size() && std::equal(sent.begin(), sent.end(), r.log.begin()) &&
                    r.log.back().epoch == a.from.epoch.value;
  if (late) return;
  r.log = sent;
  r.shared = a.log;
  write(
      r, [log = a.log](ElectionHost::Copy& copy) { copy.log = *log; },
      [this, length = sent.size(), reply] {
        reply(std::any(ToyReply{true, {}, {host_.starts}, length}));
      });
}

void ElectionNode::append_own(Replica& r) {
  r.log.push_back({r.leads.value, world_.next_entry()});
  auto log = std::make_shared<const ToyLog>(r.log);
  r.shared = log;
  write(
      r, [log](ElectionHost::Copy& copy) { copy.log = *log; },
      [this, &r, length = log->size(), epoch = r.leads] {
        if (r.leads != epoch) return;
        r.durable = std::max(r.durable, length);
        commit(r);
      });
  push(r);
}

void ElectionNode::push(Replica& r) {
  const ToyOpen self{r.partition, r.leads, r.assignment, host_.id, {host_.starts}};
  for (const auto& v : world_.voters(r.partition)) {
    if (v.assignment == r.assignment || r.leads.value == 0) continue;
    auto& f = r.followers[v.assignment];
    const auto heard = beacons_.heard(v.server);
    if (heard && heard->incarnation > f.opened) f.opened = {};
    const auto refused = [this, &r, epoch = r.leads](const ToyReply& reply) {
      if (r.leads == epoch) step(r, PromiseMet{reply.promised});
    };
    if (f.opened.value == 0) {
      if (f.opening) continue;
      f.opening = true;
      network_.call(host_.process, election_address(v.server), self, kCallTimeout,
                    [this, &r, &f, v, refused, epoch = r.leads](Network::Answer answer) {
                      f.opening = false;
                      if (!answer || r.leads != epoch) return;
                      const auto& reply = std::any_cast<const ToyReply&>(*answer);
                      if (!reply.taken) return refused(reply);
                      beacons_.accepted_by(v.server, reply.life, world_.partition_id(r.partition), epoch);
                      f.opened = reply.life;
                      f.acked = 0;
                      push(r);
                    });
    } else if (!f.sending && f.acked < r.log.size()) {
      f.sending = true;
      network_.call(host_.process, election_address(v.server), ToyAppend{self, r.shared}, kCallTimeout,
                    [this, &r, &f, refused, epoch = r.leads](Network::Answer answer) {
                      f.sending = false;
                      if (r.leads != epoch) return;
                      if (!answer) {
                        f.opened = {};
                        return;
                      }
                      const auto& reply = std::any_cast<const ToyReply&>(*answer);
                      if (!reply.taken) {
                        f.opened = {};
                        return refused(reply);
                      }
                      f.acked = std::max(f.acked, reply.length);
                      commit(r);
                    });
    }
  }
}

// S14: only what is of its own epoch, and everything before it.
void ElectionNode::commit(Replica& r) {
  for (size_t n = r.durable; n > r.commit && r.log[n - 1].epoch == r.leads.value; --n) {
    const bool held = model::majority_of(world_.voters(r.partition), [&](const model::Voter& v) {
      return v.assignment == r.assignment || r.followers[v.assignment].acked >= n;
    });
    if (!held) continue;
    r.commit = n;
    return world_.committed(host_, r.partition, r.leads, r.log, n);
  }
}

bool ElectionNode::level(size_t partition, const model::AssignmentId& voter) const {
  const auto& r = *replicas_[partition];
  const auto f = r.followers.find(voter);
  return r.leads.value != 0 && f != r.followers.end() && f->second.acked == r.log.size() && r.durable == r.log.size();
}

void ElectionNode::resign(size_t partition, model::AssignmentId successor) {
  step(*replicas_[partition], ResignAsked{successor, "asked to"});
}

// --- effects -----------------------------------------------------------------------------------------------------

void ElectionNode::perform(Replica& r, const Lead& e) {
  world_.scheduler().note("lead", host_.id.name, r.partition, e.epoch.value);
  world_.began_to_lead(host_, r.partition, e.epoch, r.log);
  r.leads = e.epoch;
  r.pipe = {};
  r.durable = r.commit = 0;
  for (auto& [assignment, f] : r.followers) f.opened = {}, f.acked = 0;
  append_own(r);
}
void ElectionNode::perform(Replica& r, const Stop& e) {
  world_.scheduler().note("stop", host_.id.name, r.partition, e.epoch.value, e.why);
  r.leads = {};
}
void ElectionNode::perform(Replica& r, const Follow& e) {
  world_.scheduler().note("follow", host_.id.name, r.partition, e.epoch.value, e.leader.name);
}
void ElectionNode::perform(Replica& r, const Say& e) {
  world_.scheduler().note("say", host_.id.name, r.partition, e.text);
}

void ElectionNode::perform(Replica& r, const Seal& e) {
  world_.scheduler().note("seal", host_.id.name, r.partition, e.promised.value);
  write(
      r, [e](ElectionHost::Copy& copy) { copy.promised = std::max(copy.promised, e.promised); },
      [this, &r, e] {
        step(r, Sealed{e.promised, durable_token(r)});
      });
}

void ElectionNode::perform(Replica& r, const AskSuspect& e) {
  model::QuorumSuspect q;
  q.envelope.partition = world_.partition_id(r.partition);
  q.envelope.from = host_.id;
  q.envelope.incarnation = {host_.starts};
  q.envelope.from_assignment = r.assignment;
  q.epoch = e.epoch;
  q.leader = e.leader;
  q.server = e.server;
  network_.call(host_.process, election_address(e.to.server), q, kCallTimeout,
                [this, &r, by = e.to.assignment, number = e.number](Network::Answer answer) {
                  if (answer)
                    step(r, SuspectAnswered{by, number, std::any_cast<const model::QuorumSuspectReply&>(*answer)});
                  else
                    step(r, SuspectAnswered{by, number, base::fail(answer.error())});
                });
}

void ElectionNode::perform(Replica& r, const SendRelease& e) {
  model::QuorumRelease release;
  release.envelope.partition = world_.partition_id(r.partition);
  release.envelope.from = host_.id;
  release.envelope.incarnation = {host_.starts};
  release.epoch = e.epoch;
  release.successor = e.successor;
  network_.notify(host_.process, election_address(e.to.server), release);
}

void ElectionNode::perform(Replica& r, const ReadGovernment& e) {
  governments_->read(ElectionWorld::kDistribution, ElectionWorld::region(r.partition),
                     [this, &r, number = e.number](base::Result<std::optional<coord::Governments::Read>> read) {
                       GovernmentRead in{number, std::optional<VersionedGovernment>()};
                       if (!read)
                         in.answer = base::fail(read.error());
                       else if (*read)
                         in.answer = VersionedGovernment{(*read)->government, (*read)->version};
                       step(r, in);
                     });
}

void ElectionNode::perform(Replica& r, const SwapGovernment& e) {
  governments_->swap(ElectionWorld::kDistribution, ElectionWorld::region(r.partition), e.version, e.to,
                     [this, &r, number = e.number](const base::Result<int32_t>& done) {
                       step(r, Swapped{number, proto::swap_result(done), done.value_or(0)});
                     });
}

void ElectionNode::perform(Replica& r, const PutVote& e) {
  governments_->put_vote(ElectionWorld::kDistribution, ElectionWorld::region(r.partition), e.vote,
                         [this, &r, number = e.number](const base::Status& status) {
                           step(r, VotePut{number, status});
                         });
}

void ElectionNode::perform(Replica& r, const RemoveVote& e) {
  governments_->remove_vote(ElectionWorld::kDistribution, ElectionWorld::region(r.partition), e.token, host_.id,
                            [this, &r, number = e.number](const base::Status& status) {
                              step(r, VotePut{number, status});
                            });
}

void ElectionNode::perform(Replica& r, const ReadVotes& e) {
  const auto wanted = [this, &r] { return r.election->wants_votes(host_.process.now()); };
  governments_->read_votes(ElectionWorld::kDistribution, ElectionWorld::region(r.partition), wanted,
                           [this, &r, number = e.number](const base::Result<std::vector<model::Vote>>& votes) {
                             step(r, VotesRead{number, votes});
                           });
}

}  // namespace cantle::sim
