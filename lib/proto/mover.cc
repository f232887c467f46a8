#include "lib/proto/mover.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "lib/base/testing.h"

namespace cantle::proto::mover {

using base::Instant;

Mover::Mover(base::Random& random) : shared_(random) {}
Mover::~Mover() = default;

Effects Mover::step(Input input) {
  Effects out;
  const Instant now = std::visit([](const auto& in) { return in.now; }, input);
  std::visit([&](auto& in) { on(in, out); }, input);
  join(now, out);
  prove(now, out);
  turns(now, out);
  for (const auto& e : out)
    if (const auto* r = std::get_if<RecordMark>(&e)) known_marks_.insert(r->key);
  return out;
}

template <class In>
void Mover::on(In& in, Effects& out) {
  auto it = streams_.find(in.stream);
  if (it == streams_.end()) return;  // its target or its copy is gone; so is the question (S25)
  if constexpr (std::is_same_v<In, MarkLoaded> || std::is_same_v<In, LogRead> || std::is_same_v<In, SnapshotRead>)
    it->second->on(std::move(in), out);
  else
    it->second->on(in, out);
}

void Mover::on(Tick& in, Effects& out) {
  for (auto& [id, stream] : streams_) stream->advance(in.now, out);
  forget_marks(in.now, out);
}

// --- The view --------------------------------------------------------------------------------------

void Mover::on(ViewSeen& in, Effects& out) {
  take_identity(in.view, in.now);
  take_peers(in.view, in.now);
  take_held(in.view, in.now);
  // The logs are measured again whenever a map has changed: bulk.end rests on an end measured after it (S43).
  bool changed = shared_.paused || shared_.maps.size() != in.view.maps.size();
  for (const auto& [name, map] : in.view.maps) {
    auto it = shared_.maps.find(name);
    changed = changed || it == shared_.maps.end() || it->second->txnseq != map->txnseq;
  }
  shared_.paused = false;
  shared_.paused_why.clear();
  shared_.maps = std::move(in.view.maps);
  if (changed) ++shared_.measure;
  plan_streams(in.now, out);
  bool unmeasured = changed;
  for (const auto& [own, copy] : copies_) unmeasured = unmeasured || !shared_.logs.contains(copy.held.partition);
  if (unmeasured) measure(out);
  for (auto& [own, copy] : copies_)
    if (copy.proof && copy.proof->waits_for_view())
      copy.proof->viewed(copy.targets, shared_.logs[copy.held.partition].end, txnseq_of(copy), in.now, out);
}

void Mover::take_identity(const View& view, Instant now) {
  const bool restarted = view.incarnation != shared_.incarnation || view.self != shared_.self;
  shared_.self = view.self;
  shared_.number = view.number;
  shared_.incarnation = view.incarnation;
  if (!restarted) return;
  // Another life of the partd: its journal may have been cut; what was under way spoke for the old one.
  shared_.paused = true;
  shared_.logs.clear();
  for (auto& [id, stream] : streams_) stream->peer_restarted(now);
  for (auto& [own, copy] : copies_)
    if (copy.proof) copy.proof->stop("the partition server has started again");
}

void Mover::take_peers(const View& view, Instant now) {
  std::map<model::ServerId, Peer> peers;
  shared_.numbers.clear();
  shared_.numbers[view.number] = view.self;
  for (const auto& p : view.peers) {
    Peer peer{p.incarnation, p.live, now};
    auto it = shared_.peers.find(p.server);
    const bool known = it != shared_.peers.end();
    const bool same = known && it->second.incarnation == p.incarnation;
    const bool woke = p.live && !(known && it->second.live);
    if (same && !woke) peer.since = it->second.since;
    peers[p.server] = peer;
    if (p.number.value != 0) shared_.numbers[p.number] = p.server;
    if (same && !woke) continue;
    for (auto& [id, stream] : streams_) {
      if (stream->target().server != p.server) continue;
      if (same)
        stream->wake();
      else
        stream->peer_restarted(now);
    }
  }
  shared_.peers = std::move(peers);
}

void Mover::take_held(const View& view, Instant now) {
  std::map<model::AssignmentId, Copy> copies;
  for (const auto& held : view.held) {
    Copy copy;
    auto it = copies_.find(held.assignment);
    if (it != copies_.end() && it->second.held.partition == held.partition) copy = std::move(it->second);
    const bool same_range = copy.held.interval == held.interval;
    copy.held = held;
    if (!held.unload || !same_range) copy.proof.reset();
    if (held.unload && !copy.proof) copy.proof = std::make_unique<Proof>(shared_, held, now);
    copies[held.assignment] = std::move(copy);
  }
  copies_ = std::move(copies);
}

void Mover::plan_streams(Instant now, Effects& out) {
  std::map<StreamId, std::pair<Target, const model::HeldPartition*>> wanted;
  for (auto& [own, copy] : copies_) {
    copy.targets.clear();
    copy.covered = copy.needed = false;
    auto it = shared_.maps.find(copy.held.table);
    if (it == shared_.maps.end()) continue;
    copy.targets = targets_of(copy.held, *it->second, shared_.self);
    copy.covered = covered(copy.held, *it->second);
    copy.needed = copy.proof && model::being_filled(*it->second, copy.held.interval);
    for (const auto& t : copy.targets) {
      wanted[t.id] = {t, &copy.held};
      if (!joins(t)) continue;
      for (const auto& log : shared_.logs[t.source].joined) {
        auto joined = joined_target(t, log, *it->second, shared_.self);
        const auto id = joined.id;
        wanted[id] = {std::move(joined), &copy.held};
      }
    }
  }
  for (auto it = streams_.begin(); it != streams_.end();)
    it = wanted.contains(it->first) ? std::next(it) : streams_.erase(it);
  for (auto& [id, want] : wanted) {
    auto& stream = streams_[id];
    if (!stream) {
      if (MUTANT("position_kept_across_tenure"))
        for (const auto& key : known_marks_)
          if (key.own == id.own && key.server == want.first.server) want.first.marks.push_back(key);
      stream = std::make_unique<MoverStream>(shared_, want.first, now);
      stream->hold(held_back(want.first));
    }
    stream->retarget(std::move(want.first), want.second->settled, now, out);
  }
}

// The logs that the source's goes on from are sent first.
bool Mover::joins(const Target& target) const {
  const auto log = shared_.logs.find(target.source);
  if (log == shared_.logs.end() || log->second.joined.empty()) return false;
  const auto stream = streams_.find(target.id);
  return stream == streams_.end() || stream->second->unjoined();
}

void Mover::join(Instant now, Effects& out) {
  if (shared_.paused) return;
  for (auto& [id, stream] : streams_) {
    if (!stream->waits_for_joined()) continue;
    size_t through = 0, known = 0, stuck = 0;
    const auto& joined = shared_.logs[stream->target().source].joined;
    for (const auto& log : joined) {
      const auto it = streams_.find({log.assignment, id.target});
      if (it == streams_.end()) continue;
      known++;
      if (it->second->stuck()) stuck++;
      if (it->second->caught_up()) through++;
    }
    const bool all = through == joined.size() || MUTANT("joined_before_the_rest");
    if (all || (known == joined.size() && stuck > 0)) stream->join(all, now, out);
  }
}

void Mover::measure(Effects& out) {
  Measure m;
  m.number = shared_.measure;
  std::set<model::PartitionId> partitions;
  for (const auto& [own, copy] : copies_) partitions.insert(copy.held.partition);
  m.partitions.assign(partitions.begin(), partitions.end());
  out.emplace_back(std::move(m));
}

void Mover::on(ViewLost& in, Effects&) {
  if (shared_.paused) {
    shared_.paused_why = in.why;
    return;
  }
  shared_.paused = true;
  shared_.paused_why = in.why;
  for (auto& [id, stream] : streams_) stream->pause();
  for (auto& [own, copy] : copies_)
    if (copy.proof) copy.proof->stop(in.why);
}

void Mover::on(LogsSeen& in, Effects& out) {
  if (shared_.paused) return;
  bool merged = false;
  for (auto& [partition, state] : in.logs) {
    merged = merged || state.joined != shared_.logs[partition].joined;
    shared_.logs[partition] = state;
  }
  shared_.measured = std::max(shared_.measured, in.measure);
  if (merged) plan_streams(in.now, out);
  for (auto& [id, stream] : streams_) stream->advance(in.now, out);
}

// --- Turns -----------------------------------------------------------------------------------------

// Whoever waits for a slot or for bytes gets what came free, in the order of their ids, the busy servers' last.
void Mover::turns(Instant now, Effects& out) {
  for (int round = 0; shared_.freed && round < 4; ++round) {
    shared_.freed = false;
    for (auto& [id, stream] : streams_)
      if (stream->wants_turn()) stream->advance(now, out);
  }
}

// --- Proof -----------------------------------------------------------------------------------------

model::TxnSeq Mover::txnseq_of(const Copy& copy) const {
  auto it = shared_.maps.find(copy.held.table);
  return it == shared_.maps.end() ? model::TxnSeq{} : it->second->txnseq;
}

bool Mover::through(const Copy& copy, std::string* why) const {
  if (!copy.covered) {
    *why = "METADATA names nobody else for some of it, or names this copy again";
    return false;
  }
  if (copy.needed) {
    *why = "a replica of what took over is still being filled";
    return false;
  }
  for (const auto& t : copy.targets) {
    auto it = streams_.find(t.id);
    if (it != streams_.end() && !it->second->held() && it->second->caught_up()) continue;
    *why = it != streams_.end() && it->second->held() ? "held by an operator"
                                                      : "the rest is still being pushed to " + t.server.name;
    return false;
  }
  return true;
}

void Mover::prove(Instant now, Effects& out) {
  if (shared_.paused) return;
  for (auto& [own, copy] : copies_) {
    if (!copy.proof || copy.proof->done()) continue;
    take_lacking(copy, now, out);
    std::string why;
    if (!through(copy, &why)) {
      copy.proof->stop(std::move(why));
      continue;
    }
    copy.proof->advance(copy.targets, shared_.logs[copy.held.partition].end, txnseq_of(copy), now, out);
  }
}

void Mover::take_lacking(Copy& copy, Instant now, Effects& out) {
  for (const auto& id : copy.proof->take_lacking()) {
    auto it = streams_.find(id);
    if (it == streams_.end()) continue;
    it->second->requeue(now, out);
    it->second->advance(now, out);
  }
}

Proof* Mover::proof_of(const model::AssignmentId& own) {
  auto it = copies_.find(own);
  return it == copies_.end() ? nullptr : it->second.proof.get();
}

void Mover::on(ProofRead& in, Effects& out) {
  if (auto* proof = proof_of(in.own)) proof->on(std::move(in), out);
}
void Mover::on(Proved& in, Effects& out) {
  if (auto* proof = proof_of(in.own)) proof->on(in, out);
}
void Mover::on(Dropped& in, Effects& out) {
  if (auto* proof = proof_of(in.own)) proof->on(in, out);
}

// --- Marks that nothing needs ------------------------------------------------------------------------

void Mover::on(MarksListed& in, Effects&) { known_marks_.insert(in.keys.begin(), in.keys.end()); }

void Mover::forget_marks(Instant now, Effects& out) {
  if (shared_.paused || now - swept_at_ < std::chrono::seconds(10)) return;
  swept_at_ = now;
  std::set<MarkKey> needed;
  for (const auto& [id, stream] : streams_) needed.insert(stream->target().marks.begin(), stream->target().marks.end());
  for (auto it = known_marks_.begin(); it != known_marks_.end();) {
    if (copies_.contains(it->own) || needed.contains(*it)) {
      unneeded_.erase(*it);
      ++it;
      continue;
    }
    const Instant since = unneeded_.try_emplace(*it, now).first->second;
    if (now - since < kForgetAfter) {
      ++it;
      continue;
    }
    out.emplace_back(ForgetMark{*it});
    unneeded_.erase(*it);
    it = known_marks_.erase(it);
  }
}

// --- Operators ---------------------------------------------------------------------------------------

bool names(const std::string& which, const Target& target) {
  if (which.empty() || which == target.table || which == target.server.name) return true;
  if (which.size() < 4) return false;
  auto prefix = [&](const std::string& id) { return id.compare(0, which.size(), which) == 0; };
  return prefix(to_string(target.source)) || prefix(to_string(target.partition)) || prefix(to_string(target.id.own)) ||
         prefix(to_string(target.id.target));
}

bool Mover::held_back(const Target& target) const {
  return std::any_of(holds_.begin(), holds_.end(), [&](const auto& which) { return names(which, target); });
}

void Mover::on(Asked& in, Effects& out) {
  if (in.verb == Verb::hold) holds_.insert(in.which);
  if (in.verb == Verb::release) {
    if (in.which.empty())
      holds_.clear();
    else
      holds_.erase(in.which);
  }
  for (auto& [id, stream] : streams_) {
    const bool held = held_back(stream->target());
    if (held != stream->held()) stream->hold(held);
    if (!names(in.which, stream->target())) continue;
    if (in.verb == Verb::requeue) stream->requeue(in.now, out);
    if (in.verb == Verb::wake) stream->wake();
    stream->advance(in.now, out);
  }
}

// --- What people see -----------------------------------------------------------------------------------

std::vector<StreamStatus> Mover::streams(Instant now) const {
  std::vector<StreamStatus> all;
  for (const auto& [id, stream] : streams_) {
    StreamStatus s;
    s.target = stream->target();
    s.mark = stream->mark();
    auto it = shared_.logs.find(s.target.source);
    if (it != shared_.logs.end()) s.log = it->second;
    s.state = stream->state();
    s.why = stream->why();
    s.caught_up = stream->caught_up();
    s.sent_bytes = stream->sent_bytes();
    if (s.state == "retrying") s.retry_in_ms = std::max<int64_t>(0, base::to_ms(stream->retry_at() - now));
    all.push_back(std::move(s));
  }
  return all;
}

std::vector<StreamId> Mover::stream_ids() const {
  std::vector<StreamId> ids;
  ids.reserve(streams_.size());
  for (const auto& [id, stream] : streams_) ids.push_back(id);
  return ids;
}

std::vector<ProofStatus> Mover::proofs() const {
  std::vector<ProofStatus> all;
  for (const auto& [own, copy] : copies_)
    if (copy.proof) all.push_back({copy.held, copy.proof->state(), copy.proof->why(), copy.proof->proved()});
  return all;
}

bool Mover::all_done() const {
  if (shared_.paused || shared_.measured < shared_.measure) return false;
  for (const auto& [id, stream] : streams_)
    if (!stream->held() && !stream->caught_up()) return false;
  for (const auto& [own, copy] : copies_)
    if (copy.proof && !copy.proof->done()) return false;
  return true;
}

}  // namespace cantle::proto::mover
