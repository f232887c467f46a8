// What a replica of a quorum table asked for, done.
#include "cmd/partd/quorum.h"
#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/testing.h"
#include "lib/wire/block.h"
#include "lib/wire/codec.h"
#include "lib/wire/pipe_block.h"

namespace cantle::partd {

using base::Code;
using namespace proto::quorum;
namespace election = proto::election;

model::Envelope Quorum::envelope(const Replica& r, const model::AssignmentId& to) const {
  model::Envelope e;
  e.table = r.name;
  e.table_uuid = r.table;
  e.partition = r.partition;
  if (const auto map = tables_.installed(r.name)) e.txnseq = map->txnseq;
  e.from = self_;
  e.incarnation = incarnation_;
  e.from_assignment = r.assignment;
  e.to_assignment = to;
  return e;
}

// --- the election ----------------------------------------------------------------------------------

void Quorum::perform(Replica& r, election::ReadGovernment& e) {
  governments_.read(
      r.distribution, r.region,
      [this, id = r.assignment, number = e.number](base::Result<std::optional<coord::Governments::Read>> read) {
        election::GovernmentRead in{number, std::optional<election::VersionedGovernment>()};
        if (!read)
          in.answer = base::fail(read.error());
        else if (*read)
          in.answer = election::VersionedGovernment{(*read)->government, (*read)->version};
        run(id, [&](Replica& to, Out& out) { to.machine->elect(at(), in, out); });
      });
}

void Quorum::perform(Replica& r, election::SwapGovernment& e) {
  CRASH_POINT("partd.before_government");
  governments_.swap(r.distribution, r.region, e.version, e.to,
                    [this, id = r.assignment, number = e.number](const base::Result<int32_t>& done) {
                      CRASH_POINT("partd.government");
                      const election::Swapped in{number, proto::swap_result(done), done.value_or(0)};
                      run(id, [&](Replica& to, Out& out) { to.machine->elect(at(), in, out); });
                    });
}

void Quorum::perform(Replica& r, election::Seal& e) {
  const auto done = [this, id = r.assignment, promised = e.promised](const base::Status& status) {
    CRASH_POINT("partd.sealed");
    run(id, [&](Replica& to, Out& out) {
      election::Sealed in{promised, base::fail(Code::unavailable, "")};
      if (status)
        in.log = model::token_of(engine_.quorum_log(to.partition)->durable);
      else
        in.log = base::fail(status.error());
      to.machine->elect(at(), in, out);
    });
  };
  if (const auto asked = engine_.seal(r.partition, e.promised, done); !asked)
    loop_.defer([done, asked] { done(asked); });
}

// Of the replica that is there now.
bool Quorum::may_stand(const std::string& distribution, model::Region region, const model::LogToken& vote) {
  const auto it = by_region_.find({distribution, region});
  const auto* r = it == by_region_.end() ? nullptr : find(it->second);
  return r != nullptr && r->machine->election().standing().contains(vote);
}

void Quorum::perform(Replica& r, election::PutVote& e) {
  const auto done = [this, d = r.distribution, region = r.region, token = e.vote.token, id = r.assignment,
                     number = e.number](const base::Status& status) {
    CRASH_POINT("partd.voted");
    if (find(id) == nullptr && !may_stand(d, region, token)) return governments_.forget_vote(d, region, token, self_);
    run(id, [&](Replica& to, Out& out) { to.machine->elect(at(), election::VotePut{number, status}, out); });
  };
  governments_.put_vote(r.distribution, r.region, e.vote, done);
}

void Quorum::perform(Replica& r, election::RemoveVote& e) {
  governments_.remove_vote(
      r.distribution, r.region, e.token, self_,
      [this, id = r.assignment, number = e.number](const base::Status& status) {
        run(id, [&](Replica& to, Out& out) { to.machine->elect(at(), election::VotePut{number, status}, out); });
      });
}

void Quorum::perform(Replica& r, election::ReadVotes& e) {
  const auto wanted = [this, id = r.assignment] {
    const auto* at = find(id);
    return at != nullptr && at->machine->election().wants_votes(loop_.now());
  };
  governments_.read_votes(r.distribution, r.region, wanted,
                          [this, id = r.assignment, number = e.number](base::Result<std::vector<model::Vote>> votes) {
                            run(id, [&](Replica& to, Out& out) {
                              to.machine->elect(at(), election::VotesRead{number, std::move(votes)}, out);
                            });
                          });
}

void Quorum::perform(Replica& r, election::AskSuspect& e) {
  model::QuorumSuspect q;
  q.envelope = envelope(r, e.to.assignment);
  q.epoch = e.epoch;
  q.leader = e.leader;
  q.server = e.server;
  links_.call(
      e.to.server, "quorum.suspect", wire::encode(q), kSuspectTimeout,
      [this, id = r.assignment, by = e.to.assignment, number = e.number](base::Result<std::string_view> answer) {
        election::SuspectAnswered in{by, number, base::fail(Code::unavailable, "no answer")};
        if (answer)
          in.answer = wire::decode<model::QuorumSuspectReply>(*answer);
        else
          in.answer = base::fail(answer.error());
        run(id, [&](Replica& to, Out& out) { to.machine->elect(at(), in, out); });
      });
}

void Quorum::perform(Replica& r, election::SendRelease& e) {
  links_.notify(e.to.server, "quorum.release",
                wire::encode(model::QuorumRelease{envelope(r, e.to.assignment), e.epoch, e.successor}));
}

// --- the log ---------------------------------------------------------------------------------------

void Quorum::perform(Replica& r, Build& e) {
  std::string payload;
  if (auto node = r.batches.extract({e.epoch, e.batch}); !node.empty()) payload = std::move(node.mapped());
  if (e.kind == model::BlockKind::epoch_start) begin_judging(r);
  if (model::is_cut_mark(e.kind)) payload = model::cut_payload(e.attempt);
  base::Result<Leader::Placed> placed = base::fail(Code::unavailable, "the log does not end there");
  if (engine_.log_end(r.partition)->lsn.next() == e.first) {
    CRASH_POINT("partd.before_build");
    const auto done = [this, id = r.assignment](const base::Result<model::LogPoint>& point) {
      CRASH_POINT("partd.built_durable");
      if (point) durable(id, *point);
    };
    const auto header = engine_.build(r.partition, {e.kind, e.epoch, e.commit}, payload, done);
    if (header) {
      placed = Leader::Placed{header->first, point_of(*header), payload.size()};
      r.kept[header->last()] = {*header, std::move(payload)};
    } else {
      placed = base::fail(header.error());
    }
  }
  if (!placed) r.judge.cut(e.first);
  run(r, [&](Out& out) { r.machine->built(at(), e.batch, e.epoch, placed, out); });
}

// The next block is appended at once, so that all those of this group share a sync; the news of this one come when that
// is on its way.
void Quorum::durable(const model::AssignmentId& id, const model::LogPoint& point) {
  run(id, [&](Replica& r, Out& out) { r.machine->synced(at(), point, out); });
  loop_.defer([this, alive = alive_, id] {
    if (*alive) run(id, [&](Replica& r, Out& out) { r.machine->durable(at(), out); });
  });
}

void Quorum::perform(Replica& r, Take& e) {
  auto node = blocks_.extract(e.call);
  CHECK(!node.empty());
  auto& block = node.mapped();
  const auto done = [this, id = r.assignment](const base::Result<model::LogPoint>& point) {
    CRASH_POINT("partd.taken_durable");
    if (!point) return;
    run(id, [&](Replica& to, Out& out) {
      to.machine->synced(at(), *point, out);
      to.machine->durable(at(), out);
    });
  };
  const auto taken = engine_.take(r.partition, block.header, std::move(block.payload), done,
                                  e.urgent ? store::Sync::now : store::Sync::soon);
  if (taken) return;
  base::log(
      base::Level::warn, "take",
      {{"partition", to_string(r.partition)}, {"lsn", block.header.first.value}, {"error", to_string(taken.error())}});
  run(r, [&](Out& out) {
    r.machine->take_failed(at(), engine_.log_end(r.partition).value_or(model::LogPoint{}), taken.error(), out);
  });
}

void Quorum::perform(Replica& r, Truncate& e) {
  base::log(base::Level::notice, "truncate", {{"partition", to_string(r.partition)}, {"keep", e.keep.lsn.value}});
  const auto done = [this, id = r.assignment](const base::Status& status) {
    CRASH_POINT("partd.truncated");
    run(id, [&](Replica& to, Out& out) { to.machine->truncated(at(), status, out); });
  };
  if (const auto asked = engine_.truncate(r.partition, e.keep, done); !asked)
    loop_.defer([done, asked] { done(asked); });
}

void Quorum::perform(Replica& r, Commit& e) {
  CRASH_POINT("partd.commit");
  if (const auto done = engine_.commit(r.partition, e.lsn); !done)
    base::log(base::Level::error, "commit",
              {{"partition", to_string(r.partition)}, {"lsn", e.lsn.value}, {"error", to_string(done.error())}});
  flush_soon(r);  // there may be room for writes that wait
}

// --- other replicas --------------------------------------------------------------------------------

template <class Message>
void Quorum::call_pipe(Replica& r, std::string_view method, const model::Hop& to, model::Epoch epoch,
                       uint64_t generation, const Message& message, const std::function<void()>& answered) {
  links_.call(to.server, method, wire::encode(message), kOpenTimeout,
              [this, id = r.assignment, to, epoch, generation, answered](base::Result<std::string_view> answer) {
                base::Result<model::PipeOpenReply> reply = base::fail(Code::unavailable, "no answer");
                if (answer)
                  reply = wire::decode<model::PipeOpenReply>(*answer);
                else
                  reply = base::fail(answer.error());
                run(id, [&](Replica& at_leader, Out& out) {
                  at_leader.machine->opened(at(), to, epoch, generation, reply, out);
                });
                answered();
              });
}

void Quorum::perform(Replica& r, SendOpen& e) {
  const auto server = e.to.server;
  opening_[server].waiting.emplace_back(r.assignment, std::move(e));
  open_pipes(server);
}

// Who comes to lead thousands at once opens so many at a time: beacons and requests are answered between them, and none
// waits so long that it is given up.
void Quorum::open_pipes(const model::ServerId& server) {
  auto& opening = opening_[server];
  while (!opening.waiting.empty() && opening.out < kOpensMost) {
    const auto [id, e] = std::move(opening.waiting.front());
    opening.waiting.pop_front();
    auto* r = find(id);
    if (r == nullptr || r->machine->election().leads() != e.epoch) continue;
    ++opening.out;
    call_pipe(*r, "pipe.open", e.to, e.epoch, e.generation,
              model::PipeOpen{envelope(*r, e.to.assignment), e.epoch, e.generation, e.commit}, [this, server] {
                --opening_[server].out;
                open_pipes(server);
              });
  }
}

void Quorum::perform(Replica& r, SendCut& e) {
  call_pipe(r, "pipe.cut", e.to, e.epoch, e.generation,
            model::PipeCut{envelope(r, e.to.assignment), e.epoch, e.generation, e.end, e.keep}, [] {});
}

void Quorum::send_block(const model::ServerId& to, const model::PipeBlock& message, const model::BlockHeader& header,
                        std::string_view payload) {
  char bytes[wire::kBlockHeaderSize];
  wire::encode_header(header, bytes);
  links_.notify(to, "pipe.block", wire::encode_pipe_block(message, {bytes, sizeof bytes}, payload));
}

void Quorum::perform(Replica& r, SendBlock& e) {
  const auto it = r.kept.find(e.last);
  CHECK(it != r.kept.end());
  CRASH_POINT("partd.before_pipe");
  send_block(e.to.server,
             {envelope(r, e.to.assignment), e.epoch, e.generation, e.commit, std::move(e.route), e.urgent, ""},
             it->second.header, it->second.payload);
}

void Quorum::perform(Replica& r, ForgetBlocks& e) { r.kept.erase(r.kept.begin(), r.kept.upper_bound(e.through)); }

void Quorum::perform(Replica& r, SendCommit& e) {
  links_.notify(e.to.server, "pipe.commit",
                wire::encode(model::PipeCommit{envelope(r, e.to.assignment), e.epoch, e.generation, e.commit, e.agreed,
                                               e.quiet}));
}

// --- what a replica misses ---------------------------------------------------------------------------

void Quorum::perform(Replica& r, SendOld& e) {
  old_.emplace_back(r.assignment, std::move(e));
  read_old();
}

// So few at a time, and none for a link that still has much to send: whatever is missed, and in however many
// partitions, requests are served beside it.
void Quorum::read_old() {
  for (auto it = old_.begin(); it != old_.end() && old_reading_ < kOldReadsMax;) {
    if (links_.unsent(it->second.to.server) >= kOldUnsentMax) {
      ++it;
      continue;
    }
    const auto asked = std::move(*it);
    it = old_.erase(it);
    if (const auto* r = find(asked.first)) read_old(*r, asked.second);
  }
  if (!old_.empty() && old_reading_ < kOldReadsMax) old_timer_.start(kOldLook);
}

// On a thread, which makes of each block the message that it is sent in.
void Quorum::read_old(const Replica& r, const SendOld& e) {
  struct Part {
    model::PipeBlock message;
    std::vector<std::string> blocks;
    std::vector<model::LogPoint> ends;
  };
  const auto part = std::make_shared<Part>();
  part->message = {envelope(r, e.to.assignment), e.epoch, e.generation, e.commit, {}, 1, ""};
  old_reading_++;
  const auto see = [part](const model::BlockHeader& h, std::string_view bytes) {
    part->blocks.push_back(wire::encode_pipe_block(part->message, bytes));
    part->ends.push_back(point_of(h));
  };
  engine_.stream_log(
      r.partition, e.from, e.bytes, see,
      [this, alive = alive_, id = r.assignment, to = e.to, epoch = e.epoch, generation = e.generation,
       part](const base::Status& status) {
        if (!*alive) return;
        old_reading_--;
        base::Result<std::vector<model::LogPoint>> sent = std::move(part->ends);
        if (!status) sent = base::fail(status.error());
        if (find(id) == nullptr) return read_old();
        for (const auto& block : part->blocks) links_.notify(to.server, "pipe.block", block);
        run(id, [&](Replica& now, Out& out) { now.machine->old_sent(at(), to, epoch, generation, sent, out); });
        read_old();
      });
}

void Quorum::perform(Replica& r, FindPoint& e) {
  base::Result<model::LogPoint> found = base::fail(Code::unavailable, "it is not known yet");
  if (const auto point = engine_.point_at(r.partition, e.lsn))
    found = *point;
  else if (const auto blocks = engine_.read_log(r.partition, e.lsn, 1); !blocks)
    found = base::fail(blocks.error());
  run(r, [&](Out& out) { r.machine->point_found(at(), e.peer, e.epoch, e.generation, found, out); });
}

void Quorum::perform(Replica&, AnswerOpen& e) {
  auto node = opens_.extract(e.call);
  if (node.empty()) return;
  if (e.reply)
    node.mapped().ok(wire::encode(*e.reply));
  else
    node.mapped().fail(e.reply.error());
}

void Quorum::perform(Replica& r, SendAck& e) {
  CRASH_POINT("partd.before_ack");
  links_.notify(e.to.server, "pipe.ack",
                wire::encode(model::PipeAck{envelope(r, e.to.assignment), e.epoch, e.generation, e.refused, e.gap,
                                            std::move(e.error), e.durable, e.commit}));
}

void Quorum::perform(Replica&, Forward& e) {
  const auto& block = blocks_.at(e.call);
  auto message = block.message;
  message.route = std::move(e.route);
  message.urgent = e.urgent;
  message.envelope.to_assignment = e.to.assignment;
  send_block(e.to.server, message, block.header, block.payload);
}

void Quorum::perform(Replica&, Release& e) { blocks_.erase(e.call); }

// --- a snapshot in the place of the own copy ---------------------------------------------------------

void Quorum::perform(Replica& r, SendOutside& e) {
  links_.notify(e.to.server, "quorum.outside",
                wire::encode(model::QuorumOutside{envelope(r, e.to.assignment), e.epoch}));
}

void Quorum::perform(Replica& r, PullSnapshot& e) {
  const auto told = [this, id = r.assignment, number = e.number](const base::Result<model::SnapshotPlace>& place) {
    run(id, [&](Replica& to, Out& out) { to.machine->snapshot_pulled(at(), number, place, out); });
  };
  const model::QuorumSnapshot ask{envelope(r, e.from.assignment), e.place, model::kSnapshotPartBytes};
  links_.call(e.from.server, "quorum.snapshot", wire::encode(ask), kPartTimeout,
              [this, partition = r.partition, told](base::Result<std::string_view> answer) {
                if (!answer) return told(base::fail(answer.error()));
                auto part = wire::decode<model::QuorumSnapshotPart>(*answer);
                if (!part) return told(base::fail(part.error()));
                const auto put = [told, place = part->place](const base::Status& status) {
                  if (status)
                    told(place);
                  else
                    told(base::fail(status.error()));
                };
                if (const auto begun = engine_.refill(partition, std::move(*part), put); !begun)
                  told(base::fail(begun.error()));
              });
}

void Quorum::perform(Replica& r, InstallSnapshot&) {
  const auto done = [this, id = r.assignment](const base::Status& status) {
    run(id, [&](Replica& to, Out& out) {
      base::Result<proto::QuorumReplica::Rebuilt> rebuilt = base::fail(Code::unavailable, "its log is gone");
      const auto log = engine_.quorum_log(to.partition);
      if (!status)
        rebuilt = base::fail(status.error());
      else if (log)
        rebuilt = proto::QuorumReplica::Rebuilt{log->end, log->commit, log->epochs, log->cuts};
      to.machine->snapshot_installed(at(), std::move(rebuilt), out);
    });
  };
  if (const auto begun = engine_.install(r.partition, done); !begun) loop_.defer([done, begun] { done(begun); });
}

// --- blocks that cannot be read here ---------------------------------------------------------------

void Quorum::perform(Replica& r, FetchBlocks& e) {
  const auto tell = [this, id = r.assignment, number = e.number](const base::Status& status) {
    run(id, [&](Replica& to, Out& out) {
      base::Result<proto::QuorumReplica::Mended> mended = base::fail(Code::cancelled, "its log is gone");
      const auto log = engine_.quorum_log(to.partition);
      if (!status)
        mended = base::fail(status.error());
      else if (log)
        mended =
            proto::QuorumReplica::Mended{engine_.gap(to.partition), {log->end, log->commit, log->epochs, log->cuts}};
      to.machine->mended(at(), number, std::move(mended), out);
    });
  };
  const auto fill = [this, partition = r.partition, gap = e.gap,
                     tell](const base::Result<std::string_view>& answer) -> base::Status {
    if (!answer) return base::fail(answer.error());
    TRY_ASSIGN(auto reply, wire::decode<model::QuorumBlocksReply>(*answer));
    std::vector<model::Block> blocks;
    for (auto& b : reply.blocks) {
      TRY_ASSIGN(const auto header, wire::decode_header(b.header));
      blocks.push_back({header, std::move(b.payload)});
    }
    return engine_.mend(partition, gap, std::move(blocks), tell);
  };
  links_.call(e.from.server, "quorum.blocks", wire::encode(model::QuorumBlocks{envelope(r, e.from.assignment), e.gap}),
              kGapTimeout, [fill, tell](const base::Result<std::string_view>& answer) {
                if (const auto begun = fill(answer); !begun) tell(begun);
              });
}

void Quorum::perform(Replica& r, BorrowBlocks& e) {
  const auto kept = [this](const base::Result<std::string_view>& answer) -> base::Result<Lent> {
    if (!answer) return base::fail(answer.error());
    TRY_ASSIGN(auto reply, wire::decode<model::QuorumLendReply>(*answer));
    Lent lent{reply.end, reply.keep, {}};
    std::vector<Block> blocks;
    for (auto& b : reply.blocks) {
      TRY_ASSIGN(const auto header, wire::decode_header(b.header));
      TRY(wire::check_payload(header, b.payload));
      if (!model::is_log_block(header.kind)) return base::fail(Code::malformed, "no block of a log");
      blocks.push_back({{}, header, std::move(b.payload)});
    }
    for (auto& b : blocks) {
      LentBlock one{++last_id_, b.header, {}};
      if (model::is_cut_mark(b.header.kind)) one.attempt = model::attempt_of_cut(b.payload).value_or(one.attempt);
      lent.blocks.push_back(one);
      blocks_[one.call] = std::move(b);
    }
    return lent;
  };
  links_.call(e.from.server, "quorum.lend",
              wire::encode(model::QuorumLend{envelope(r, e.from.assignment), e.promise, e.end, std::move(e.epochs)}),
              kLendTimeout, [this, id = r.assignment, number = e.number, kept](base::Result<std::string_view> answer) {
                run(id, [&](Replica& to, Out& out) { to.machine->lent(at(), number, kept(answer), out); });
              });
}

void Quorum::perform(Replica& r, MarkWhole&) {
  const auto done = [this, id = r.assignment](const base::Status& status) {
    run(id, [&](Replica& to, Out& out) { to.machine->marked_whole(at(), status, out); });
  };
  if (const auto begun = engine_.mark_whole({r.partition, r.assignment}, done); !begun)
    loop_.defer([done, begun] { done(begun); });
}

// --- clients and people ----------------------------------------------------------------------------

void Quorum::perform(Replica& r, Reply& e) {
  auto node = requests_.extract(e.request);
  if (node.empty()) return;
  auto& request = node.mapped();
  CRASH_POINT("partd.quorum_reply");
  if (!e.result) {
    const bool now = current_ != nullptr && current_id_ == e.request;
    if (e.result.error().code == Code::not_leader)
      return not_leader(r.partition, e.result.error(), request.method, now ? current_->params : request.params,
                        request.txnseq, request.hop, request.timeout, request.responder);
    return request.responder.fail(e.result.error());
  }
  if (const auto* refused = std::get_if<base::Error>(&request.verdict)) return request.responder.fail(*refused);
  const auto& outcome = std::get<model::WriteOutcome>(request.verdict);
  const bool number = outcome.kind != model::ResultKind::place;
  answer_.clear();
  wire::Writer w(answer_);
  w.map(4u + (number ? 1 : 0) + (request.repeat ? 1 : 0));
  w.str("version");
  w.bin(model::quorum_version(outcome.epoch, outcome.lsn).view());
  w.str("lsn");
  w.uint(outcome.lsn.value);
  w.str("epoch");
  w.uint(outcome.epoch.value);
  w.str("txnseq");
  const auto map = tables_.installed(r.name);
  w.uint(map ? map->txnseq.value : 0);
  if (number) {
    w.str("result");
    w.sint(outcome.value);
  }
  if (request.repeat) {
    w.str("repeat");
    w.boolean(true);
  }
  request.responder.ok(answer_);
}

// --- a split or a merge ----------------------------------------------------------------------------

void Quorum::perform(Replica& r, ReadReshape& e) {
  hooks_.read_map(r.name, [this, alive = alive_, id = r.assignment,
                           number = e.number](const base::Result<std::shared_ptr<const model::Metadata>>& map) {
    if (!*alive) return;
    run(id, [&](Replica& to, Out& out) {
      base::Result<ReshapeSeen> seen = base::fail(Code::unavailable, "");
      if (!map)
        seen = base::fail(map.error());
      else if ((*map)->table != to.table)
        seen = ReshapeSeen{};
      else
        seen = reshape_of(**map, to.partition);
      to.machine->reshape_read(at(), number, seen, out);
    });
  });
}

void Quorum::perform(Replica& r, AskAbort& e) {
  base::log(base::Level::notice, e.merge ? "abort-merge" : "abort-split",
            {{"table", r.name}, {"partition", to_string(r.partition)}, {"attempt", to_string(e.attempt)}});
  if (e.merge)
    hooks_.change(r.name, model::ops::AbortMerge{e.attempt, e.merge->low, e.merge->high});
  else
    hooks_.change(r.name, model::ops::AbortSplit{r.partition, e.attempt});
}

void Quorum::perform(Replica& r, Faulted& e) {
  base::log(base::Level::error, "faulted", {{"partition", to_string(r.partition)}, {"why", e.why}});
}

void Quorum::perform(Replica& r, Say& e) {
  base::log(e.level, e.what, {{"table", r.name}, {"region", r.region.value}, {"text", e.text}});
}

}  // namespace cantle::partd
