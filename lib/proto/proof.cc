#include "lib/proto/proof.h"

#include <algorithm>
#include <utility>

#include "lib/base/testing.h"

namespace cantle::proto::mover {

using base::Instant;

Proof::Proof(Shared& shared, model::HeldPartition held, Instant now)
    : shared_(shared), held_(std::move(held)), retry_at_(now) {}

void Proof::advance(const std::vector<Target>& targets, const model::LogPoint& end, model::TxnSeq txnseq, Instant now,
                    Effects& out) {
  if (state_ == State::dropped) return;
  const bool running = state_ != State::waiting;
  if (running && !same(targets, end)) again(now, "the map, a target or our log changed during the proof");
  if (state_ == State::asking)
    for (auto& a : asked_)
      if (a.ticket == 0 && now >= a.again) send(a, now, out);
  if (running && state_ != State::waiting && now - asked_at_ >= kAnswerWithin) again(now, "no answer in time");
  if (state_ == State::waiting && now >= retry_at_) start(targets, end, txnseq, now, out);
}

void Proof::start(const std::vector<Target>& targets, const model::LogPoint& end, model::TxnSeq txnseq, Instant now,
                  Effects& out) {
  targets_ = targets;
  incarnations_ = incarnations(targets);
  end_ = end;
  txnseq_ = txnseq;
  through_key_.clear();
  last_ = final_ = false;
  proved_ = 0;
  why_.clear();
  if (MUTANT("drop_before_proof")) {
    last_ = final_ = true;
    state_ = State::viewing;
    asked_at_ = now;
    out.emplace_back(RefreshView{});
    return;
  }
  read(now, out);
}

void Proof::read(Instant now, Effects& out) {
  state_ = State::reading;
  ticket_ = ++shared_.tickets;
  asked_at_ = now;
  out.emplace_back(
      ReadProof{held_.assignment, ticket_, held_.partition, held_.interval, through_key_, model::kDigestEntriesMax});
}

void Proof::on(ProofRead in, Effects& out) {
  if (state_ != State::reading || in.ticket != ticket_) return;
  if (!in.chunk) return again(in.now, "reading the index: " + base::to_string(in.chunk.error()));
  if (in.chunk->applied < end_.lsn) return again(in.now, "the index has not applied the log yet");
  through_key_ = in.chunk->through_key;
  last_ = in.chunk->last;
  proved_ += in.chunk->entries.size();
  ask(in.chunk->entries, in.now, out);
}

// Every target is asked for what it should hold; in the last round for nothing but its presence.
void Proof::ask(const std::vector<model::DigestEntry>& entries, Instant now, Effects& out) {
  state_ = State::asking;
  asked_.clear();
  asked_at_ = now;
  for (size_t i = 0; i < targets_.size(); ++i) {
    model::Digest m;
    m.envelope = envelope_to(shared_, targets_[i], txnseq_);
    for (const auto& e : entries)
      if (targets_[i].interval.contains(e.key)) m.entries.push_back(e);
    if (m.entries.empty() && !final_ && !last_) continue;
    asked_.push_back({i, std::move(m), 0, 0, {}});
  }
  for (auto& a : asked_) send(a, now, out);
  if (asked_.empty()) read(now, out);
}

void Proof::send(Ask& ask, Instant now, Effects& out) {
  ask.ticket = ++shared_.tickets;
  ++ask.tries;
  asked_at_ = now;
  out.emplace_back(AskProof{held_.assignment, ask.ticket, targets_[ask.target].server, ask.message});
}

void Proof::on(const Proved& in, Effects& out) {
  auto it = std::find_if(asked_.begin(), asked_.end(), [&](const Ask& a) { return a.ticket == in.ticket; });
  if (state_ != State::asking || it == asked_.end()) return;
  const Target& target = targets_[it->target];
  if (!in.reply) {
    const auto code = in.reply.error().code;
    const bool passing =
        code == base::Code::unavailable || code == base::Code::outcome_unknown || code == base::Code::overloaded;
    if (!passing || it->tries >= kProofTries)
      return again(in.now, target.server.name + ": " + base::to_string(in.reply.error()));
    it->ticket = 0;  // a question changes nothing: ask once more
    it->again = in.now + kProofRetry;
    why_ = "asks " + target.server.name + " again: " + in.reply.error().text;
    return;
  }
  why_.clear();
  if (!in.reply->lacking.empty()) {
    // It confirmed this once, and does not hold it: push everything to it again (S54).
    lacking_.insert(target.id);
    out.emplace_back(Note{true, "proof", to_string(held_.partition), target.server.name,
                          "lacks " + std::to_string(in.reply->lacking.size()) + " records that it should have"});
    return again(in.now, target.server.name + " lacks records that it should have");
  }
  asked_.erase(it);
  if (!asked_.empty()) return;
  if (final_) {
    state_ = State::dropping;
    ticket_ = ++shared_.tickets;
    asked_at_ = in.now;
    out.emplace_back(Drop{held_.assignment, ticket_, held_.table, held_.table_uuid, held_.partition, txnseq_, end_});
    return;
  }
  if (!last_) return read(in.now, out);
  state_ = State::viewing;
  asked_at_ = in.now;
  out.emplace_back(RefreshView{});
}

void Proof::viewed(const std::vector<Target>& targets, const model::LogPoint& end, model::TxnSeq txnseq, Instant now,
                   Effects& out) {
  if (state_ != State::viewing) return;
  if (!same(targets, end)) return again(now, "the map, a target or our log changed during the proof");
  txnseq_ = txnseq;
  final_ = true;
  ask({}, now, out);
}

void Proof::on(const Dropped& in, Effects& out) {
  if (state_ != State::dropping || in.ticket != ticket_) return;
  if (!in.status) {
    out.emplace_back(RefreshView{});
    return again(in.now, "drop was refused: " + base::to_string(in.status.error()));
  }
  state_ = State::dropped;
  why_.clear();
  ++shared_.counters.drops;
  out.emplace_back(
      Note{false, "dropped", to_string(held_.partition), shared_.self.name,
           "proved " + std::to_string(proved_) + " keys at " + std::to_string(targets_.size()) + " targets"});
  out.emplace_back(RefreshView{});
}

void Proof::stop(std::string why) {
  if (state_ == State::dropped || state_ == State::dropping) return;
  state_ = State::waiting;
  asked_.clear();
  why_ = std::move(why);
}

std::set<StreamId> Proof::take_lacking() { return std::exchange(lacking_, {}); }

std::string Proof::state() const {
  switch (state_) {
    case State::waiting: return "waiting";
    case State::reading: return "reading";
    case State::asking: return "asking";
    case State::viewing: return "viewing";
    case State::dropping: return "dropping";
    case State::dropped: return "dropped";
  }
  return "?";
}

void Proof::again(Instant now, std::string why) {
  state_ = State::waiting;
  asked_.clear();
  why_ = std::move(why);
  backoff_ = backoff_.count() == 0 ? kProofRetry : std::min(backoff_ * 2, kRetryMost);
  retry_at_ = now + backoff_;
}

std::vector<model::Incarnation> Proof::incarnations(const std::vector<Target>& targets) const {
  std::vector<model::Incarnation> out;
  for (const auto& t : targets) {
    auto it = shared_.peers.find(t.server);
    out.push_back(it == shared_.peers.end() ? model::Incarnation{} : it->second.incarnation);
  }
  return out;
}

bool Proof::same(const std::vector<Target>& targets, const model::LogPoint& end) const {
  return targets == targets_ && incarnations(targets) == incarnations_ && end == end_;
}

}  // namespace cantle::proto::mover
