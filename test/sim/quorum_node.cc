#include "test/sim/quorum_node.h"

#include <algorithm>
#include <utility>

#include "lib/base/check.h"
#include "lib/store/log_report.h"
#include "lib/wire/block.h"

namespace cantle::sim {

using base::Code;
using namespace proto::quorum;
namespace election = proto::election;

namespace {

constexpr Duration kTurnEvery = 5ms, kEngineTickEvery = 50ms, kCallTimeout = 400ms;
constexpr uint64_t kOldPart = 1500;  // bytes of the journal

std::string address(const model::ServerId& server) { return server.name + "/partd"; }

}  // namespace

QuorumNode::QuorumNode(QuorumWorld& world, QuorumHost& host)
    : world_(world),
      host_(host),
      disk_(host.medium, host.process),
      executor_(host.process, world.times),
      indexes_(host.index) {
  if (world.chaos().forgets) kept_room_ = {.most = 4096, .least = 256};
  open();
}

QuorumNode::~QuorumNode() { *here_ = false; }

void QuorumNode::fatal(const std::string& why) {
  world_.scheduler.note("fatal", host_.id.name, why);
  host_.process.kill();
}

void QuorumNode::open() {
  auto dir = store::DataDir::open(disk_, {host_.id, world_.cluster});
  if (!dir) return fatal("data dir: " + to_string(dir.error()));
  dir_ = std::move(*dir);
  if (dir_->identity().number.value == 0) {
    // A directory that is made later has a higher number, whoever makes it.
    const auto number = 10 * host_.wipes + static_cast<uint32_t>(host_.id.name[1] - '0');
    if (!dir_->set_number({number})) return fatal("cannot write the id file");
  }
  auto page = store::LivePage::create(disk_, dir_->identity().incarnation);
  if (!page) return fatal("live page: " + to_string(page.error()));
  page_ = std::move(*page);
  auto engine =
      store::Engine::open({disk_, indexes_, executor_, host_.process, page_.get()}, world_.engine, dir_->identity());
  if (!engine) return fatal("engine: " + to_string(engine.error()));
  engine_ = std::move(*engine);
  engine_->on_fatal([this](const base::Error& error) { fatal("store: " + to_string(error)); });
  beacons_ = std::make_unique<proto::Beacons>(host_.id, dir_->identity().incarnation, at());
  session_ = world_.coord.open(host_.process);
  governments_ = std::make_unique<coord::Governments>(*session_, world_.layout);
  proto::quorum_tables::Self self;
  self.server = host_.id;
  for (const auto& t : engine_->tenures())
    self.held.push_back({t.id.partition, t.id.assignment, t.region, t.table, t.interval,
                         t.state == store::TenureState::aside,
                         engine_->log_end(t.id.partition).value_or(model::LogPoint{}).lsn.value == 0, t.whole});
  self.seen = host_.seen;
  self.fresh_under_known_name = host_.wipes != 0 && dir_->first_start();
  tables_.emplace(std::move(self));
  session_->on_event([this](coord::Event event) {
    if (event == coord::Event::expired)
      for (size_t i = 0; i < replicas_.size(); ++i)
        run(*replicas_[i], [&](Out& out) { replicas_[i]->machine->elect(at(), election::VotesLost{}, out); });
    if (event == coord::Event::connected) governments_->connected();
  });
  for (size_t p = 0; p < world_.chaos().partitions; ++p)
    governments_->listen(QuorumWorld::distribution(p), [this, p](const coord::Ring& ring) {
      const auto tell = [&](const std::optional<model::Region>& region, const election::Input& in) {
        for (size_t i = 0; i < replicas_.size() && host_.process.alive(); ++i)
          if (auto& r = *replicas_[i]; r.partition == p && (!region || *region == r.region))
            run(r, [&](Out& out) { r.machine->elect(at(), in, out); });
      };
      if (ring.any()) tell({}, election::Rung{});
      for (const auto& [region, vote] : ring.votes) tell(region, election::VoteHeard{vote});
      for (const auto& region : ring.governments) tell(region, election::Rung{true});
    });
  world_.network.listen(host_.process, [this](const std::string&, const std::any& request, Network::Reply reply) {
    serve(request, std::move(reply));
  });
  turn();
}

// --- which copies there are -----------------------------------------------------------------------

void QuorumNode::map_came(size_t partition, QuorumWorld::MapPtr map) {
  perform(tables_->map_read(at(), QuorumWorld::table_name(partition), std::move(map)));
  beacons_->set_peers(tables_->partners());
}

void QuorumNode::perform(proto::quorum_tables::Effects effects) {
  for (auto& effect : effects) {
    if (!host_.process.alive()) return;
    std::visit([this](auto& e) { perform(e); }, effect);
  }
}

void QuorumNode::perform(proto::quorum_tables::Create& e) {
  world_.scheduler.note("create", host_.id.name, to_string(e.copy.assignment));
  const auto done = [this, id = e.copy.assignment](const base::Status& status) {
    perform(tables_->created(at(), id, status));
    beacons_->set_peers(tables_->partners());
  };
  store::TenureSpec spec{
      {e.copy.partition, e.copy.assignment}, e.copy.table, e.copy.region, e.copy.interval, store::LogMode::quorum};
  spec.whole = e.copy.whole;
  if (const auto made = engine_->create(spec, done); !made)
    host_.process.post([done, status = made.error().code == Code::exists ? base::ok() : made] { done(status); });
}

void QuorumNode::perform(proto::quorum_tables::Begin& e) {
  const auto log = engine_->quorum_log(e.copy.partition);
  CHECK(log.has_value());
  replicas_.push_back(std::make_unique<Replica>(*this));
  auto& r = *replicas_.back();
  r.partition = world_.find(e.copy.table).value();
  r.id = e.copy.partition;
  r.assignment = e.copy.assignment;
  r.region = e.copy.region;
  ReplicaSelf self;
  self.who = {
      r.id,       r.assignment, host_.id, dir_->identity().incarnation, log->promised, model::token_of(log->end),
      log->known, log->hole};
  self.end = log->end;
  self.commit = log->commit;
  self.epochs = log->epochs;
  self.cuts = log->cuts;
  self.pipeline = world_.chaos().pipeline;
  self.snapshot = engine_->refilled(e.copy.partition);
  self.gap = engine_->gap(r.id);
  self.kept_room = &kept_room_;
  world_.scheduler.note("replica", host_.id.name, r.partition, log->end.epoch.value, log->end.lsn.value,
                        log->commit.value, log->promised.value);
  r.machine = std::make_unique<proto::QuorumReplica>(self, *beacons_, r);
  live_[r.id] = &r;
  engine_->set_needed({r.id, r.assignment}, model::Lsn{1});  // replicas that are new read it from the start
}

void QuorumNode::perform(proto::quorum_tables::Tell& e) {
  if (auto* r = find(e.partition)) run(*r, [&](Out& out) { r->machine->members(at(), std::move(e.members), out); });
}

void QuorumNode::perform(proto::quorum_tables::ShowReshape& e) {
  if (auto* r = find(e.partition)) run(*r, [&](Out& out) { r->machine->reshape_seen(at(), e.seen, out); });
}

void QuorumNode::perform(proto::quorum_tables::Divide& e) {
  const auto done = [this, partition = e.parent](const base::Status& status) {
    if (status || status.error().code != Code::unavailable)
      world_.scheduler.note("divided", host_.id.name, to_string(partition), status ? "" : to_string(status.error()));
    perform(tables_->divided(at(), partition, status));
    beacons_->set_peers(tables_->partners());
  };
  const auto child = [](const proto::quorum_tables::Child& c) {
    return store::ChildSpec{c.partition, c.region, c.assignment};
  };
  if (!host_.process.effect()) return;
  const auto point = engine_->divide_at(e.parent, e.cut, e.attempt, e.point, child(e.low), child(e.high), done);
  if (!point) host_.process.post([done, error = point.error()] { done(base::fail(error)); });
}

void QuorumNode::perform(proto::quorum_tables::Merge& e) {
  const auto done = [this, low = e.low](const base::Status& status) {
    if (status || status.error().code != Code::unavailable)
      world_.scheduler.note("merged", host_.id.name, to_string(low), status ? "" : to_string(status.error()));
    perform(tables_->merged(at(), low, status));
    beacons_->set_peers(tables_->partners());
  };
  if (!host_.process.effect()) return;
  const auto start = engine_->merge_at(
      {e.low, e.low_cut, e.high, e.high_cut, e.attempt, {e.target.partition, e.target.region, e.target.assignment}},
      done);
  if (!start) host_.process.post([done, error = start.error()] { done(base::fail(error)); });
}

void QuorumNode::perform(proto::quorum_tables::SetAside& e) {
  const auto done = [this](const base::Status& s) {
    if (!s) world_.violation(host_.id.name + " cannot set a copy aside: " + to_string(s.error()));
  };
  if (const auto begun = engine_->set_aside({e.partition, e.assignment}, e.whole, done); !begun) done(begun);
}

void QuorumNode::link_lost(const model::ServerId& server) {
  for (size_t i = 0; i < replicas_.size(); ++i)
    run(*replicas_[i], [&](Out& out) { replicas_[i]->machine->link_lost(at(), server, out); });
}

bool QuorumNode::lags(const model::PartitionId& partition) const {
  const auto all = tables_->lagging();
  return std::find(all.begin(), all.end(), partition) != all.end();
}

void QuorumNode::perform(proto::quorum_tables::End& e) {
  auto* r = find(e.partition);
  if (r == nullptr) return;
  world_.scheduler.note("end", host_.id.name, to_string(r->assignment));
  Out out;
  r->machine->resign(at(), {}, "its copy takes no further part", out);
  r->ended = true;
  for (const auto& token : r->machine->election().standing())
    governments_->forget_vote(distribution(*r), r->region, token, host_.id);
  live_.erase(e.partition);
  beacons_->forget(e.partition);
  for (auto& effect : out) {
    auto* reply = std::get_if<Reply>(&effect);
    if (reply == nullptr) continue;
    if (e.into.value != 0 && !reply->result && reply->result.error().code == Code::not_leader)
      reply->result = base::fail(Code::stale_route, "the partition was split or merged");
    perform(*r, *reply);
  }
}

void QuorumNode::perform(proto::quorum_tables::Drop& e) {
  world_.scheduler.note("drop", host_.id.name, to_string(e.assignment), e.why);
  const auto done = [this, id = e.assignment](const base::Status& status) {
    perform(tables_->dropped(at(), id, status));
  };
  if (const auto begun = engine_->drop({e.partition, e.assignment}, done); !begun)
    host_.process.post([done, begun] { done(begun.error().code == Code::not_found ? base::ok() : begun); });
}

void QuorumNode::perform(proto::quorum_tables::Settle& e) {
  engine_->drain([this, table = e.table, txnseq = e.txnseq](const base::Status& s) {
    if (s) perform(tables_->settled(table, txnseq));
  });
}

void QuorumNode::perform(proto::quorum_tables::Say& e) {
  world_.scheduler.note("say", host_.id.name, e.what, e.text);
  if (e.what == "divide" || (e.what == "copy-lost" && host_.wipes == 0))
    world_.violation(host_.id.name + " says " + e.what + ": " + e.text);
}

std::optional<model::CopyReport> QuorumNode::report(const model::PartitionId& partition) {
  const auto* r = find(partition);
  const auto log = r == nullptr ? std::nullopt : engine_->quorum_log(partition);
  if (!log) return std::nullopt;
  model::CopyReport c;
  c.server = host_.id;
  c.incarnation = dir_->identity().incarnation;
  c.table = world_.map(r->partition)->table;
  c.partition = r->id;
  c.region = r->region;
  c.assignment = r->assignment;
  c.state = r->machine->status().role;
  store::report_log(*log, c);
  return c;
}

QuorumNode::Replica* QuorumNode::find(const model::PartitionId& id) {
  const auto it = live_.find(id);
  return it == live_.end() ? nullptr : it->second;
}

QuorumNode::Replica* QuorumNode::at(size_t partition) {
  for (const auto& [id, r] : live_)
    if (r->partition == partition) return r;
  return nullptr;
}

// --- turns -----------------------------------------------------------------------------------------

void QuorumNode::turn() {
  host_.process.after(kTurnEvery, [this] { turn(); });
  for (auto& send : beacons_->turn(now()))
    world_.network.call(host_.process, address(send.to), send.beacon, kCallTimeout, [this](Network::Answer answer) {
      if (!answer) return;
      beacons_->answered(now(), std::any_cast<const model::QuorumBeaconReply&>(*answer));
      news();
    });
  news();
  for (size_t i = 0; i < replicas_.size(); ++i)
    if (auto& r = *replicas_[i]; at() >= r.machine->next_tick()) run(r, [&](Out& out) { r.machine->tick(at(), out); });
  perform(tables_->tick(at()));
  for (const auto& partition : tables_->lagging())
    if (engine_->visible(partition).value != 0) perform(tables_->filled(partition));
  if (at() >= engine_tick_) {
    engine_tick_ = at() + kEngineTickEvery;
    engine_->tick();
  }
}

void QuorumNode::news() {
  if (!beacons_->take_news()) return;
  for (size_t i = 0; i < replicas_.size(); ++i)
    run(*replicas_[i], [&](Out& out) { replicas_[i]->machine->elect(at(), election::Tick{}, out); });
}

// Effects are performed in order; what they lead to comes behind them.
void QuorumNode::run(Replica& r, const std::function<void(Out&)>& fn) {
  if (!host_.process.alive() || r.ended) return;
  Out out;
  fn(out);
  for (auto& e : out) effects_.emplace_back(&r, std::move(e));
  if (std::exchange(performing_, true)) return;
  while (!effects_.empty()) {
    auto [to, effect] = std::move(effects_.front());
    effects_.pop_front();
    if (!host_.process.effect()) return;
    if (to->ended && !std::holds_alternative<Reply>(effect)) continue;
    std::visit([&, at = to](auto& e) { perform(*at, e); }, effect);
  }
  performing_ = false;
}

void QuorumNode::hand_over(Replica* r, const model::AssignmentId& successor) {
  if (r != nullptr) run(*r, [&](Out& out) { r->machine->resign(at(), successor, "asked to", out); });
}

// --- messages --------------------------------------------------------------------------------------

void QuorumNode::serve(const std::any& request, Network::Reply reply) {
  if (const auto* b = std::any_cast<model::QuorumBeacon>(&request)) {
    if (const auto answer = beacons_->heard(now(), *b)) reply(std::any(*answer));
    return news();
  }
  if (const auto* q = std::any_cast<model::QuorumSuspect>(&request)) {
    if (auto* r = find(q->envelope.partition)) reply(std::any(r->machine->suspect(at(), *q)));
    return;
  }
  if (const auto* released = std::any_cast<model::QuorumRelease>(&request)) {
    const auto& from = released->envelope;
    beacons_->released(now(), from.from, from.incarnation, {from.partition, released->epoch, released->successor});
    return news();
  }
  if (const auto* m = std::any_cast<model::PipeOpen>(&request)) {
    auto* r = find(m->envelope.partition);
    if (r == nullptr || m->envelope.to_assignment != r->assignment) return;
    const auto id = next_id_++;
    opens_[id] = {m->epoch, std::move(reply)};
    return run(*r, [&](Out& out) { r->machine->open(at(), id, *m, out); });
  }
  if (const auto* m = std::any_cast<model::PipeCut>(&request)) {
    auto* r = find(m->envelope.partition);
    if (r == nullptr || m->envelope.to_assignment != r->assignment) return;
    const auto id = next_id_++;
    opens_[id] = {m->epoch, std::move(reply)};
    return run(*r, [&](Out& out) { r->machine->cut(at(), id, *m, out); });
  }
  if (const auto* m = std::any_cast<BlockMessage>(&request)) {
    auto* r = find(m->message.envelope.partition);
    if (r == nullptr || m->message.envelope.to_assignment != r->assignment) return;
    const auto id = next_id_++;
    blocks_[id] = *m;
    model::AttemptId attempt;
    if (model::is_cut_mark(m->bytes->header.kind)) attempt = *model::attempt_of_cut(m->bytes->payload);
    return run(*r, [&](Out& out) { r->machine->block(at(), id, m->bytes->header, m->message, out, attempt); });
  }
  if (const auto* m = std::any_cast<model::PipeCommit>(&request)) {
    auto* r = find(m->envelope.partition);
    if (r != nullptr && m->envelope.to_assignment == r->assignment)
      run(*r, [&](Out& out) { r->machine->commit(at(), *m, out); });
    return;
  }
  if (const auto* m = std::any_cast<model::PipeAck>(&request)) {
    auto* r = find(m->envelope.partition);
    if (r != nullptr && m->envelope.to_assignment == r->assignment)
      run(*r, [&](Out& out) { r->machine->ack(at(), *m, out); });
    return;
  }
  if (const auto* m = std::any_cast<model::QuorumOutside>(&request)) {
    auto* r = find(m->envelope.partition);
    if (r != nullptr && m->envelope.to_assignment == r->assignment)
      run(*r, [&](Out& out) { r->machine->outside(at(), *m, out); });
    return;
  }
  if (const auto* m = std::any_cast<model::QuorumSnapshot>(&request)) {
    auto* r = find(m->envelope.partition);
    if (r == nullptr || m->envelope.to_assignment != r->assignment) return;
    return engine_->read_snapshot(r->id, m->place, m->bytes, [reply](base::Result<model::QuorumSnapshotPart> part) {
      if (part) return reply(std::any(std::move(*part)));
      reply(base::fail(part.error()));
    });
  }
  if (const auto* m = std::any_cast<model::QuorumBlocks>(&request)) {
    auto* r = find(m->envelope.partition);
    if (r == nullptr || m->envelope.to_assignment != r->assignment) return;
    auto blocks = engine_->read_gap(r->id, m->gap);
    if (blocks) return reply(std::any(std::move(*blocks)));
    return reply(base::fail(blocks.error()));
  }
  if (const auto* m = std::any_cast<model::QuorumLend>(&request)) {
    auto* r = find(m->envelope.partition);
    if (r == nullptr || m->envelope.to_assignment != r->assignment) return;
    const auto after = r->machine->may_lend(*m);
    if (!after) return reply(base::fail(after.error()));
    auto behind = engine_->read_behind(r->id, *after, 200 + host_.process.random().below(2000));
    if (behind) return reply(std::any(std::move(*behind)));
    return reply(base::fail(behind.error()));
  }
  if (const auto* m = std::any_cast<QuorumWrite>(&request)) {
    auto* r = route(m->partition, m->ops[0].key, reply);
    if (r == nullptr) return;
    const auto* p = tables_->installed(QuorumWorld::table_name(m->partition))->find(r->id);
    for (const auto& op : m->ops)
      if (!p->interval.contains(op.key)) {
        base::Error crossing(Code::invalid, "a batch lies in one partition");
        crossing.detail = kCrossing;
        return reply(base::fail(crossing));
      }
    return write(*r, *m, std::move(reply));
  }
  if (const auto* m = std::any_cast<QuorumGet>(&request)) {
    if (auto* r = route(m->partition, m->key, reply)) get(*r, *m, std::move(reply));
  }
}

QuorumNode::Replica* QuorumNode::route(size_t partition, const std::string& key, const Network::Reply& reply) {
  const auto where = tables_->where(QuorumWorld::table_name(partition), key, {});
  auto* r = where.kind == proto::quorum_tables::Where::Kind::here ? find(where.partition->id) : nullptr;
  if (r == nullptr) reply(base::fail(Code::unavailable, "no replica takes part here"));
  return r;
}

void QuorumNode::write(Replica& r, const QuorumWrite& m, Network::Reply reply) {
  const auto id = next_id_++;
  requests_[id] = {m, std::move(reply)};
  size_t bytes = 0;
  for (const auto& op : m.ops) bytes += op.key.size() + op.value.size() + 60;
  const auto deadline = at() + std::chrono::milliseconds(m.within_ms);
  run(r, [&](Out& out) { r.machine->write(at(), id, bytes, deadline, out); });
  if (std::exchange(r.flush_planned, true)) return;
  host_.process.post([this, &r] {
    r.flush_planned = false;
    run(r, [&](Out& out) { r.machine->flush(at(), out); });
  });
}

// What is committed, and answered, must be seen: the overlay may be behind while it is full.
base::Status QuorumNode::may_read(const Replica& r) {
  TRY(r.machine->may_read(at()));
  if (engine_->visible(r.id) >= r.machine->log().commit()) return base::ok();
  return base::fail(Code::overloaded, "the index is behind what is committed");
}

void QuorumNode::get(Replica& r, const QuorumGet& m, Network::Reply reply) {
  if (m.session && m.session->of != r.id) return reply(base::fail(Code::stale_route, "it is another partition's"));
  const auto shown = r.machine->shown(engine_->visible(r.id));
  const auto before = m.session ? r.machine->may_read_session(at(), shown, m.session->seen)
                      : m.any   ? r.machine->may_read_any(shown)
                                : may_read(r);
  if (!before) return reply(base::fail(before.error()));
  const auto found = engine_->get(r.id, m.key);
  if (!found) return reply(base::fail(found.error()));
  world_.scheduler.note("read", host_.id.name, r.partition, m.key,
                        *found ? model::to_string((*found)->version) : "none", r.machine->log().commit().value,
                        engine_->quorum_log(r.id)->visible.value);
  QuorumValue value{{}, {}, r.id, shown};
  if (*found && !(*found)->deleted) {
    value.value = std::string((*found)->value);
    value.version = (*found)->version;
  }
  if (m.session || m.any) return reply(std::any(value));
  // Whatever comes between the read and its answer, and be it long: the lease is asked again (S7).
  const auto between = host_.process.random().chance(0.05) ? 900'000'000 : 2'000'000;
  host_.process.after(Duration(static_cast<int64_t>(host_.process.random().below(between))), [this, &r, value, reply] {
    const auto may = r.ended ? base::fail(Code::stale_route, "it was split or merged") : r.machine->may_read(at());
    if (may) return reply(std::any(value));
    reply(base::fail(may.error()));
  });
}

model::Envelope QuorumNode::envelope(const Replica& r, const model::AssignmentId& to) const {
  model::Envelope e;
  e.table = QuorumWorld::table_name(r.partition);
  e.table_uuid = world_.map(r.partition)->table;
  e.partition = r.id;
  e.from = host_.id;
  e.incarnation = dir_->identity().incarnation;
  e.from_assignment = r.assignment;
  e.to_assignment = to;
  return e;
}

// --- effects: the election -------------------------------------------------------------------------

void QuorumNode::perform(Replica& r, election::ReadGovernment& e) {
  governments_->read(distribution(r), r.region,
                     [this, &r, number = e.number](base::Result<std::optional<coord::Governments::Read>> read) {
                       election::GovernmentRead in{number, std::optional<election::VersionedGovernment>()};
                       if (!read)
                         in.answer = base::fail(read.error());
                       else if (*read)
                         in.answer = election::VersionedGovernment{(*read)->government, (*read)->version};
                       run(r, [&](Out& out) { r.machine->elect(at(), in, out); });
                     });
}

void QuorumNode::perform(Replica& r, election::SwapGovernment& e) {
  world_.swapping(host_, r.partition, r.region, e.to);
  governments_->swap(distribution(r), r.region, e.version, e.to,
                     [this, &r, number = e.number](base::Result<int32_t> done) {
                       const election::Swapped in{number, proto::swap_result(done), done.value_or(0)};
                       run(r, [&](Out& out) { r.machine->elect(at(), in, out); });
                     });
}

void QuorumNode::perform(Replica& r, election::Seal& e) {
  world_.scheduler.note("seal", host_.id.name, r.partition, e.promised.value);
  const auto done = [this, &r, promised = e.promised](const base::Status& status) {
    election::Sealed in{promised, base::fail(Code::unavailable, "")};
    if (status) {
      in.log = model::token_of(engine_->quorum_log(r.id)->durable);
      auto& most = host_.promised[r.assignment];
      most = std::max(most, promised);
    } else {
      in.log = base::fail(status.error());
    }
    run(r, [&](Out& out) { r.machine->elect(at(), in, out); });
  };
  if (const auto asked = engine_->seal(r.id, e.promised, done); !asked) done(asked);
}

void QuorumNode::perform(Replica& r, election::PutVote& e) {
  const auto done = [this, &r, number = e.number, token = e.vote.token](const base::Status& status) {
    const auto* now_there = r.ended ? find(r.id) : &r;
    if (now_there == nullptr || (r.ended && !now_there->machine->election().standing().contains(token)))
      return governments_->forget_vote(distribution(r), r.region, token, host_.id);
    run(r, [&](Out& out) { r.machine->elect(at(), election::VotePut{number, status}, out); });
  };
  governments_->put_vote(distribution(r), r.region, e.vote, done);
}

void QuorumNode::perform(Replica& r, election::RemoveVote& e) {
  governments_->remove_vote(distribution(r), r.region, e.token, host_.id,
                            [this, &r, number = e.number](const base::Status& status) {
                              run(r, [&](Out& out) { r.machine->elect(at(), election::VotePut{number, status}, out); });
                            });
}

void QuorumNode::perform(Replica& r, election::ReadVotes& e) {
  const auto wanted = [this, &r] { return !r.ended && r.machine->election().wants_votes(at()); };
  governments_->read_votes(distribution(r), r.region, wanted,
                           [this, &r, number = e.number](const base::Result<std::vector<model::Vote>>& votes) {
                             run(r, [&](Out& out) { r.machine->elect(at(), election::VotesRead{number, votes}, out); });
                           });
}

void QuorumNode::perform(Replica& r, election::AskSuspect& e) {
  model::QuorumSuspect q;
  q.envelope = envelope(r, e.to.assignment);
  q.epoch = e.epoch;
  q.leader = e.leader;
  q.server = e.server;
  world_.network.call(host_.process, address(e.to.server), q, kCallTimeout,
                      [this, &r, by = e.to.assignment, number = e.number](Network::Answer answer) {
                        election::SuspectAnswered in{by, number, base::fail(Code::unavailable, "no answer")};
                        if (answer) in.answer = std::any_cast<const model::QuorumSuspectReply&>(*answer);
                        run(r, [&](Out& out) { r.machine->elect(at(), in, out); });
                      });
}

void QuorumNode::perform(Replica& r, election::SendRelease& e) {
  world_.network.notify(host_.process, address(e.to.server),
                        model::QuorumRelease{envelope(r, e.to.assignment), e.epoch, e.successor});
}

// --- effects: the log ------------------------------------------------------------------------------

CommittedState QuorumNode::committed_state(const Replica& r) {
  return {[this, &r](std::string_view key) -> base::Result<std::optional<HeldValue>> {
            TRY_ASSIGN(const auto found, engine_->get(r.id, key));
            if (!found || found->deleted) return std::optional<HeldValue>();
            return std::optional(HeldValue{found->version, found->value});
          },
          [this, &r](uint64_t client) { return engine_->series(r.id, client); },
          [this, &r] { return engine_->log_time_ms(r.id); }};
}

Judged QuorumNode::gather(Replica& r, RequestId id, std::pair<model::Epoch, BatchId> batch, model::Lsn first) {
  auto& request = requests_.at(id);
  const auto& m = request.write;
  r.judge.committed(engine_->visible(r.id));
  std::vector<model::WriteOp> ops;
  ops.reserve(m.ops.size());
  for (const auto& op : m.ops) ops.push_back({op.op, op.key, op.value});
  const proto::quorum::Write write{
      m.kind, ops, {m.expect.version, m.expect.value, m.expect.absent}, m.by, m.client, m.series, m.age_ms};
  const auto verdict = r.judge.judge(write, batch.first, first);
  const auto note = [&](const char* what, uint64_t lsn) {
    world_.scheduler.note(what, host_.id.name, r.partition, m.client, m.series, m.ops[0].key, batch.first.value, lsn);
  };
  if (const auto* refusal = std::get_if<Refusal>(&verdict)) {
    note("refuse", refusal->after.value);
    request.verdict = refusal->error;
    return {0, 0, refusal->after, false};
  }
  if (const auto* repeat = std::get_if<Repeat>(&verdict)) {
    note("repeat", repeat->after.value);
    request.verdict = repeat->outcome;
    request.repeat = true;
    return {0, 0, repeat->after, true};
  }
  const auto& fresh = std::get<NewWrite>(verdict);
  note("gather", first.value);
  if (fresh.refused)
    request.verdict = *fresh.refused;
  else
    request.verdict = fresh.outcome;
  auto& payload = r.batches[batch];
  const auto before = payload.size();
  for (const auto& record : fresh.records) wire::append_record(payload, record);
  return {static_cast<uint32_t>(fresh.records.size()), payload.size() - before, {}, true};
}

// A new leadership: what a former one judged and did not get into the log is nothing.
void QuorumNode::begin_judging(Replica& r) {
  r.judge.reset();
  r.batches.clear();
}

void QuorumNode::perform(Replica& r, Build& e) {
  auto payload = std::move(r.batches[{e.epoch, e.batch}]);
  r.batches.erase({e.epoch, e.batch});
  if (e.kind == model::BlockKind::epoch_start) begin_judging(r);
  if (model::is_cut_mark(e.kind)) payload = model::cut_payload(e.attempt);
  base::Result<Leader::Placed> placed = base::fail(Code::unavailable, "the log does not end there");
  if (e.kind == model::BlockKind::data && world_.refuses_block()) {
    placed = base::fail(Code::overloaded, "the store is full for now");
  } else if (engine_->quorum_log(r.id)->end.lsn.next() == e.first) {
    const auto header = engine_->build(r.id, {e.kind, e.epoch, e.commit}, payload,
                                       [this, &r](const base::Result<model::LogPoint>& point) {
                                         if (point) durable(r, *point);
                                       });
    if (header) {
      world_.ledger.built(r.partition, *header, payload);
      r.kept[header->last()] = std::make_shared<const Bytes>(Bytes{*header, payload});
      placed = Leader::Placed{header->first, point_of(*header), payload.size()};
    } else {
      placed = base::fail(header.error());
    }
  }
  if (!placed) r.judge.cut(e.first);
  run(r, [&](Out& out) { r.machine->built(at(), e.batch, e.epoch, placed, out); });
}

// What else comes at this instant may come in between.
void QuorumNode::durable(Replica& r, const model::LogPoint& point) {
  run(r, [&](Out& out) { r.machine->synced(at(), point, out); });
  host_.process.after(Duration(0), [this, &r] { run(r, [&](Out& out) { r.machine->durable(at(), out); }); });
}

void QuorumNode::perform(Replica& r, Take& e) {
  const auto it = blocks_.find(e.call);
  const BytesPtr bytes = it->second.bytes;
  blocks_.erase(it);
  const auto taken = engine_->take(
      r.id, bytes->header, bytes->payload,
      [this, &r](const base::Result<model::LogPoint>& point) {
        if (point) durable(r, *point);
      },
      e.urgent ? store::Sync::now : store::Sync::soon);
  if (taken) return;
  world_.scheduler.note("take_failed", host_.id.name, r.partition, to_string(taken.error()));
  run(r, [&](Out& out) { r.machine->take_failed(at(), engine_->quorum_log(r.id)->end, taken.error(), out); });
}

void QuorumNode::perform(Replica& r, Truncate& e) {
  world_.scheduler.note("truncate", host_.id.name, r.partition, e.keep.lsn.value);
  const auto done = [this, &r](const base::Status& status) {
    run(r, [&](Out& out) { r.machine->truncated(at(), status, out); });
  };
  if (const auto asked = engine_->truncate(r.id, e.keep, done); !asked) done(asked);
}

void QuorumNode::perform(Replica& r, Commit& e) {
  // A leader counts itself (S5); a follower may be told before it is durable here.
  if (r.machine->serving() && e.lsn > engine_->quorum_log(r.id)->durable.lsn)
    world_.violation(host_.id.name + " leads and commits LSN " + to_string(e.lsn) +
                     ", which is not durable on it (S5)");
  const auto point = engine_->point_at(r.id, e.lsn);
  if (point && r.machine->serving() && r.machine->election().leads() && point->epoch < *r.machine->election().leads())
    world_.violation(host_.id.name + " leads and commits a block of an older epoch by itself, up to LSN " +
                     to_string(e.lsn) + " (S14)");
  if (point) world_.committed(host_, r.partition, r.id, *point);
  const auto done = engine_->commit(r.id, e.lsn);
  if (!done) world_.violation(host_.id.name + " cannot commit: " + to_string(done.error()));
}

// --- effects: other replicas -----------------------------------------------------------------------

template <class Message>
void QuorumNode::call(Replica& r, const model::Hop& to, model::Epoch epoch, uint64_t generation, Message message) {
  world_.network.call(host_.process, address(to.server), std::move(message), kOpenTimeout,
                      [this, &r, to, epoch, generation](Network::Answer answer) {
                        base::Result<model::PipeOpenReply> reply = base::fail(Code::unavailable, "no answer");
                        if (answer)
                          reply = std::any_cast<const model::PipeOpenReply&>(*answer);
                        else
                          reply = base::fail(answer.error());
                        run(r, [&](Out& out) { r.machine->opened(at(), to, epoch, generation, reply, out); });
                      });
}

void QuorumNode::perform(Replica& r, SendOpen& e) {
  call(r, e.to, e.epoch, e.generation, model::PipeOpen{envelope(r, e.to.assignment), e.epoch, e.generation, e.commit});
}

void QuorumNode::perform(Replica& r, SendCut& e) {
  call(r, e.to, e.epoch, e.generation,
       model::PipeCut{envelope(r, e.to.assignment), e.epoch, e.generation, e.end, e.keep});
}

void QuorumNode::send_block(const model::ServerId& to, BlockMessage message) {
  world_.network.notify(host_.process, address(to), std::move(message));
}

void QuorumNode::perform(Replica& r, SendBlock& e) {
  const auto it = r.kept.find(e.last);
  CHECK(it != r.kept.end());
  send_block(
      e.to.server,
      {{envelope(r, e.to.assignment), e.epoch, e.generation, e.commit, std::move(e.route), e.urgent, ""}, it->second});
}

void QuorumNode::perform(Replica& r, ForgetBlocks& e) { r.kept.erase(r.kept.begin(), r.kept.upper_bound(e.through)); }

void QuorumNode::perform(Replica& r, SendCommit& e) {
  world_.network.notify(
      host_.process, address(e.to.server),
      model::PipeCommit{envelope(r, e.to.assignment), e.epoch, e.generation, e.commit, e.agreed, e.quiet});
}

// In parts that are often of one block, so that several are under way.
void QuorumNode::perform(Replica& r, SendOld& e) {
  const auto blocks = std::make_shared<std::vector<std::shared_ptr<const Bytes>>>();
  const auto see = [blocks](const model::BlockHeader& h, std::string_view bytes) {
    blocks->push_back(std::make_shared<const Bytes>(Bytes{h, std::string(bytes.substr(wire::kBlockHeaderSize))}));
  };
  const model::PipeBlock message{envelope(r, e.to.assignment), e.epoch, e.generation, e.commit, {}, 1, ""};
  engine_->stream_log(
      r.id, e.from, 1 + host_.process.random().below(kOldPart), see,
      [this, &r, message, blocks, to = e.to](const base::Status& status) {
        if (r.ended) return;
        base::Result<std::vector<model::LogPoint>> sent = std::vector<model::LogPoint>();
        if (!status) sent = base::fail(status.error());
        for (const auto& b : *blocks) {
          sent->push_back(point_of(b->header));
          send_block(to.server, {message, b});
        }
        run(r, [&](Out& out) { r.machine->old_sent(at(), to, message.epoch, message.generation, sent, out); });
      });
}

void QuorumNode::perform(Replica& r, FindPoint& e) {
  base::Result<model::LogPoint> found = base::fail(Code::unavailable, "it is not known yet");
  if (const auto point = engine_->point_at(r.id, e.lsn))
    found = *point;
  else if (const auto blocks = engine_->read_log(r.id, e.lsn, 1); !blocks)
    found = base::fail(blocks.error());
  run(r, [&](Out& out) { r.machine->point_found(at(), e.peer, e.epoch, e.generation, found, out); });
}

void QuorumNode::perform(Replica& r, AnswerOpen& e) {
  const auto it = opens_.find(e.call);
  CHECK(it != opens_.end());
  const auto [epoch, reply] = std::move(it->second);
  opens_.erase(it);
  if (e.reply) check_durable(r, e.reply->end);
  if (e.reply && e.reply->refused.value == 0) check_promise(r, epoch);
  if (e.reply)
    reply(std::any(*e.reply));
  else
    reply(base::fail(e.reply.error()));
}

// What a replica says that it has, a leader counts (S5).
void QuorumNode::check_durable(const Replica& r, const model::LogPoint& point) {
  if (point.lsn > engine_->quorum_log(r.id)->durable.lsn)
    world_.violation(host_.id.name + " says that it has LSN " + to_string(point.lsn) + ", which is not durable (S5)");
}

// Whoever it promised that to may be elected, and has not what is acknowledged here.
void QuorumNode::check_promise(const Replica& r, model::Epoch epoch) {
  const auto promised = host_.promised.find(r.assignment);
  if (promised != host_.promised.end() && epoch < promised->second)
    world_.violation(host_.id.name + " obeys a leader of epoch " + to_string(epoch) + " and has sealed " +
                     to_string(promised->second) + " (S11)");
}

void QuorumNode::perform(Replica& r, SendAck& e) {
  check_durable(r, e.durable);
  if (e.refused.value == 0) check_promise(r, e.epoch);
  world_.network.notify(host_.process, address(e.to.server),
                        model::PipeAck{envelope(r, e.to.assignment), e.epoch, e.generation, e.refused, e.gap,
                                       std::move(e.error), e.durable, e.commit});
}

void QuorumNode::perform(Replica&, Forward& e) {
  BlockMessage m = blocks_.at(e.call);
  m.message.route = std::move(e.route);
  m.message.urgent = e.urgent;
  m.message.envelope.to_assignment = e.to.assignment;
  send_block(e.to.server, std::move(m));
}

void QuorumNode::perform(Replica&, Release& e) { blocks_.erase(e.call); }

// --- effects: snapshots ----------------------------------------------------------------------------

void QuorumNode::perform(Replica& r, SendOutside& e) {
  world_.network.notify(host_.process, address(e.to.server),
                        model::QuorumOutside{envelope(r, e.to.assignment), e.epoch});
}

void QuorumNode::perform(Replica& r, PullSnapshot& e) {
  const auto told = [this, &r, number = e.number](const base::Result<model::SnapshotPlace>& place) {
    run(r, [&](Out& out) { r.machine->snapshot_pulled(at(), number, place, out); });
  };
  const model::QuorumSnapshot ask{envelope(r, e.from.assignment), e.place,
                                  static_cast<uint32_t>(200 + host_.process.random().below(2000))};
  world_.network.call(
      host_.process, address(e.from.server), ask, kPartTimeout, [this, &r, told](Network::Answer answer) {
        if (!answer) return told(base::fail(answer.error()));
        const auto& part = std::any_cast<const model::QuorumSnapshotPart&>(*answer);
        const auto put = engine_->refill(r.id, part, [told, place = part.place](const base::Status& status) {
          if (status)
            told(place);
          else
            told(base::fail(status.error()));
        });
        if (!put) told(base::fail(put.error()));
      });
}

void QuorumNode::perform(Replica& r, InstallSnapshot&) {
  const auto done = [this, &r, before = engine_->quorum_log(r.id)](const base::Status& status) {
    base::Result<proto::QuorumReplica::Rebuilt> rebuilt = base::fail(Code::unavailable, "");
    if (status) {
      const auto log = engine_->quorum_log(r.id);
      if (model::token_of(log->end) < model::token_of(before->durable) || log->commit < before->commit)
        world_.violation(host_.id.name + " puts a snapshot of LSN " + to_string(log->end.lsn) +
                         " in the place of a log that ended at " + to_string(before->durable.lsn) + " (S5)");
      rebuilt = proto::QuorumReplica::Rebuilt{log->end, log->commit, log->epochs, log->cuts};
      world_.scheduler.note("rebuilt", host_.id.name, r.partition, log->end.epoch.value, log->end.lsn.value,
                            log->promised.value);
      ++host_.rebuilt;
    } else {
      rebuilt = base::fail(status.error());
    }
    run(r, [&](Out& out) { r.machine->snapshot_installed(at(), std::move(rebuilt), out); });
  };
  if (const auto begun = engine_->install(r.id, done); !begun) host_.process.post([done, begun] { done(begun); });
}

void QuorumNode::perform(Replica& r, FetchBlocks& e) {
  const auto tell = [this, &r, number = e.number, gap = e.gap](const base::Status& status) {
    run(r, [&](Out& out) {
      base::Result<proto::QuorumReplica::Mended> mended = base::fail(Code::cancelled, "its log is gone");
      const auto log = engine_->quorum_log(r.id);
      if (!status) {
        mended = base::fail(status.error());
      } else if (log) {
        world_.scheduler.note("mended", host_.id.name, r.partition, gap.after.lsn.value, gap.upto.lsn.value);
        ++host_.mended;
        mended = proto::QuorumReplica::Mended{engine_->gap(r.id), {log->end, log->commit, log->epochs, log->cuts}};
      }
      r.machine->mended(at(), number, std::move(mended), out);
    });
  };
  const auto fill = [this, &r, gap = e.gap, tell](const Network::Answer& answer) -> base::Status {
    if (!answer) return base::fail(answer.error());
    return engine_->mend(r.id, gap, std::any_cast<const std::vector<model::Block>&>(*answer), tell);
  };
  world_.network.call(host_.process, address(e.from.server), model::QuorumBlocks{envelope(r, e.from.assignment), e.gap},
                      kGapTimeout, [fill, tell](const Network::Answer& answer) {
                        if (const auto begun = fill(answer); !begun) tell(begun);
                      });
}

void QuorumNode::perform(Replica& r, BorrowBlocks& e) {
  const auto kept = [this](const Network::Answer& answer) -> base::Result<Lent> {
    if (!answer) return base::fail(answer.error());
    const auto& behind = std::any_cast<const store::Engine::Behind&>(*answer);
    Lent lent{behind.end, behind.after, {}};
    for (const auto& b : behind.blocks) {
      LentBlock one{next_id_++, b.header, {}};
      if (model::is_cut_mark(b.header.kind)) one.attempt = *model::attempt_of_cut(b.payload);
      lent.blocks.push_back(one);
      blocks_[one.call].bytes = std::make_shared<Bytes>(Bytes{b.header, b.payload});
    }
    return lent;
  };
  world_.network.call(host_.process, address(e.from.server),
                      model::QuorumLend{envelope(r, e.from.assignment), e.promise, e.end, std::move(e.epochs)},
                      kLendTimeout, [this, &r, number = e.number, kept](const Network::Answer& answer) {
                        const auto lent = kept(answer);
                        world_.scheduler.note("lent", host_.id.name, r.partition, lent ? lent->blocks.size() : 0);
                        if (lent) ++host_.borrowed;
                        run(r, [&](Out& out) { r.machine->lent(at(), number, lent, out); });
                      });
}

void QuorumNode::perform(Replica& r, MarkWhole&) {
  const auto done = [this, &r](const base::Status& status) {
    if (status) world_.scheduler.note("whole", host_.id.name, r.partition);
    run(r, [&](Out& out) { r.machine->marked_whole(at(), status, out); });
  };
  if (const auto begun = engine_->mark_whole({r.id, r.assignment}, done); !begun)
    host_.process.post([done, begun] { done(begun); });
}

// --- effects: clients and people -------------------------------------------------------------------

void QuorumNode::perform(Replica& r, Reply& e) {
  auto node = requests_.extract(e.request);
  CHECK(!node.empty());
  auto& request = node.mapped();
  const auto& m = request.write;
  world_.scheduler.note("replied", host_.id.name, r.partition, m.client, m.series, m.ops[0].key,
                        e.result ? e.result->last.value : 0);
  if (!e.result) return request.reply(base::fail(e.result.error()));
  if (const auto* refused = std::get_if<base::Error>(&request.verdict)) {
    if (refused->code == Code::condition_failed) world_.ledger.refused(r.partition, m.ops[0].key, refused->detail);
    return request.reply(base::fail(*refused));
  }
  const auto& outcome = std::get<model::WriteOutcome>(request.verdict);
  if (const auto fault = world_.ledger.told(r.partition, m.client, m.series, outcome)) world_.violation(*fault);
  world_.acknowledged(host_, r.partition, r.id, outcome.lsn);
  request.reply(std::any(QuorumWritten{outcome, request.repeat, r.id}));
}

// --- effects: a split or a merge -------------------------------------------------------------------

void QuorumNode::perform(Replica& r, ReadReshape& e) {
  session_->sync(world_.layout.config(distribution(r)), [this, &r, number = e.number](const base::Status& synced) {
    if (r.ended) return;
    base::Result<ReshapeSeen> seen = base::fail(Code::unavailable, "");
    if (synced) seen = reshape_of(*world_.map(r.partition), r.id);
    run(r, [&](Out& out) { r.machine->reshape_read(at(), number, seen, out); });
  });
}

void QuorumNode::perform(Replica& r, AskAbort& e) {
  if (e.merge)
    world_.ask_abort(host_, r.partition, model::ops::AbortMerge{e.attempt, e.merge->low, e.merge->high});
  else
    world_.ask_abort(host_, r.partition, model::ops::AbortSplit{r.id, e.attempt});
}

void QuorumNode::perform(Replica& r, Faulted& e) {
  world_.violation(host_.id.name + ", partition " + std::to_string(r.partition) + ", is faulted: " + e.why);
}

void QuorumNode::perform(Replica& r, Say& e) {
  world_.scheduler.note("say", host_.id.name, r.partition, e.what, e.text);
}

}  // namespace cantle::sim
