#include "test/sim/pusher.h"

#include "cmd/replpush/log_batch.h"
#include "lib/base/check.h"
#include "lib/store/data_dir.h"
#include "lib/wire/block.h"
#include "test/sim/partd.h"

namespace cantle::sim {

using base::Code;
namespace mover = proto::mover;

namespace {

constexpr Duration kTickEvery = 100ms;
constexpr Duration kViewEvery = 1s;
constexpr Duration kAttachRetry = 100ms;
constexpr Duration kCallTimeout = 10s;
constexpr size_t kReadMost = 12 << 10;  // segments are small here, and a block must fit one
constexpr size_t kRoomInSegment = 1 << 10;

size_t bytes_of(const mover::LogBatch& batch) {
  size_t bytes = batch.own.bytes ? batch.own.bytes->size() : 0;
  for (const auto& f : batch.foreign) bytes += f.record.size();
  return bytes;
}

template <class T>
base::Result<T> as(const Network::Answer& answer) {
  if (!answer) return base::fail(answer.error());
  return std::any_cast<T>(*answer);
}
base::Status status_of(const Network::Answer& answer) {
  if (!answer) return base::fail(answer.error());
  return base::ok();
}

}  // namespace

PushNode::PushNode(Cluster& cluster, Host& host)
    : cluster_(cluster),
      host_(host),
      process_(host.push),
      disk_(host.medium, host.push),
      mover_(host.push.random()),
      positions_factory_(host.positions),
      index_factory_(host.index) {
  cluster_.network.listen(process_,
                          [this, here = here_](const std::string&, const std::any& request, Network::Reply reply) {
                            if (!*here) return;
                            if (std::any_cast<model::MapChanged>(&request) || std::any_cast<Wake>(&request)) {
                              refresh_view();
                              return reply(std::any(base::Nothing{}));
                            }
                            reply(base::fail(Code::invalid, "unknown method"));
                          });
  attach();
  process_.after(kTickEvery, [this, here = here_] {
    if (*here) tick();
  });
}

PushNode::~PushNode() { *here_ = false; }

// Everything that its partd makes; tried until it is there.
void PushNode::attach() {
  const auto later = [this] {
    process_.after(kAttachRetry, [this, here = here_] {
      if (*here) attach();
    });
  };
  if (!store::DataDir::read(disk_)) return later();
  auto positions = positions_factory_.open();
  auto index = index_factory_.open();
  auto page = store::LivePage::attach(disk_);
  auto journal = store::JournalReader::open(disk_);
  if (!positions || !index || !page || !journal) return later();
  positions_index_ = std::move(*positions);
  positions_ = std::make_unique<store::PositionStore>(*positions_index_);
  index_ = std::move(*index);
  direct_ = std::make_unique<store::DirectReader>(*index_);
  page_ = std::move(*page);
  journal_ = std::move(*journal);
  attached_ = true;
  host_.medium.on_wake([this, here = here_] {
    if (*here) look_at_journal();
  });
  if (!listed_) {
    listed_ = true;
    mover::MarksListed listed{now(), {}};
    if (auto all = positions_->all())
      for (const auto& [key, position] : *all) listed.keys.push_back({key.own, position.server, key.target});
    input(std::move(listed));
  }
  refresh_view();
}

void PushNode::tick() {
  input(mover::Tick{now()});
  if (attached_) {
    if (now() - view_at_ >= kViewEvery) refresh_view();
    look_at_journal();
  }
  process_.after(kTickEvery, [this, here = here_] {
    if (*here) tick();
  });
}

void PushNode::refresh_view() {
  if (!attached_) return;
  if (asking_view_) {
    ask_again_ = true;
    return;
  }
  asking_view_ = true;
  view_at_ = now();
  cluster_.network.call(process_, host_.id.name + "/partd", ViewAsk{}, 1s, [this](Network::Answer r) {
    if (!*here_) return;
    asking_view_ = false;
    if (!r) {
      input(mover::ViewLost{now(), r.error().text});
    } else {
      const auto& answer = std::any_cast<const ViewAnswer&>(*r);
      // The page and the view must be of one life of the partd; the journal may be another file set now.
      const auto state = page_->read();
      if (!state.valid || state.incarnation != answer.view.incarnation) {
        input(mover::ViewLost{now(), "the partition server is starting"});
      } else {
        if (page_incarnation_ != state.incarnation) {
          page_incarnation_ = state.incarnation;
          if (auto journal = store::JournalReader::open(disk_)) journal_ = std::move(*journal);
          if (auto index = index_factory_.open()) {
            direct_.reset();
            index_ = std::move(*index);
            direct_ = std::make_unique<store::DirectReader>(*index_);
          }
        }
        view_ = {answer.view.self, answer.view.number, answer.view.incarnation,
                 answer.maps,      answer.view.held,   answer.view.peers};
        input(mover::ViewSeen{now(), view_});
        logs_seen(0);
        live_seen();
      }
    }
    if (ask_again_) {
      ask_again_ = false;
      refresh_view();
    }
  });
}

void PushNode::look_at_journal() {
  if (looking_) return;
  looking_ = true;
  process_.after(200us, [this, here = here_] {
    if (!*here) return;
    looking_ = false;
    const auto state = page_->read();
    if (!state.valid || state.incarnation != page_incarnation_) return;
    if (state.durable != seen_) logs_seen(0);
    live_seen();
  });
}

void PushNode::logs_seen(uint64_t measure) {
  const auto state = page_->read();
  if (!state.valid || state.incarnation != page_incarnation_) {
    if (measure) input(mover::ViewLost{now(), "the partition server is starting"});
    return;
  }
  if (const auto advanced = journal_->advance(state.durable); !advanced) {
    cluster_.scheduler.note("journal_reader", host_.id.name, advanced.error().text);
    if (auto journal = store::JournalReader::open(disk_)) journal_ = std::move(*journal);
    return;
  }
  seen_ = state.durable;
  mover::LogsSeen logs{now(), measure, {}};
  for (const auto& held : view_.held) {
    if (replpush::add_logs(*journal_, held.partition, &logs.logs)) continue;
    // From what the index has applied, where the journal has no block of the log (any more).
    if (!direct_->refresh()) continue;
    const auto tenure = direct_->find(store::TenureId{held.partition, held.assignment});
    if (tenure && *tenure) {
      const auto& t = **tenure;
      mover::LogState log;
      log.end = t.applied.lsn < t.log_start.lsn ? t.log_start : t.applied;
      log.oldest = log.end.lsn.next();
      logs.logs[held.partition] = log;
    }
    direct_->release();
  }
  input(std::move(logs));
}

void PushNode::live_seen() {
  for (const auto& id : mover_.stream_ids())
    if (const auto point = page_->confirmed({id.own, id.target})) input(mover::LiveSeen{now(), id, *point});
}

void PushNode::input(mover::Input in) {
  if (!process_.alive()) return;
  inputs_.push_back(std::move(in));
  pump();
}

void PushNode::pump() {
  if (pumping_) return;
  pumping_ = true;
  while (!inputs_.empty() && process_.alive()) {
    mover::Input in = std::move(inputs_.front());
    inputs_.pop_front();
    auto effects = mover_.step(std::move(in));
    for (auto& effect : effects) {
      if (!process_.alive()) break;
      std::visit([this](auto& e) { perform(e); }, effect);
    }
  }
  pumping_ = false;
}

void PushNode::soon(Fn fn) {
  process_.after(cluster_.scheduler.between(20us, 200us), [here = here_, f = std::move(fn)] {
    if (*here) f();
  });
}

void PushNode::perform(mover::LoadMark& e) {
  mover::MarkLoaded loaded{now(), e.stream, e.ticket, {}};
  for (const auto& key : e.keys) {
    const auto position = positions_->get({key.own, key.target});
    if (!position || !*position || (*position)->server != key.server) continue;
    const auto& p = **position;
    loaded.found.push_back({key, mover::Mark{p.confirmed, p.snapshot, p.snapshot_from}});
  }
  soon([this, in = std::move(loaded)]() mutable {
    in.now = now();
    input(std::move(in));
  });
}

void PushNode::perform(mover::RecordMark& e) {
  if (!process_.effect()) return;
  store::Position p;
  p.partition = e.partition;
  p.target_partition = e.target_partition;
  p.server = e.key.server;
  p.confirmed = e.mark.at;
  p.snapshot = e.mark.snapshot;
  p.snapshot_from = e.mark.snapshot_from;
  (void)positions_->put({e.key.own, e.key.target}, p);
}

void PushNode::perform(mover::ForgetMark& e) {
  if (process_.effect()) (void)positions_->remove({e.key.own, e.key.target});
}

void PushNode::perform(mover::Measure& e) {
  soon([this, number = e.number] { logs_seen(number); });
}

void PushNode::perform(mover::RefreshView&) { refresh_view(); }

// A batch ends with a whole block. Segments are smaller here than what a batch and a block can come to: then it is the
// one block. What was passed over counts, for it may be read again: with `until`, in one piece.
mover::LogRead PushNode::read_log(mover::ReadLog ask) {
  if (ask.until.value != 0) return replpush::read_batch(*journal_, ask, view_.number);
  ask.bytes = std::min(ask.bytes, kReadMost);
  auto all = ask;
  all.await.clear();
  auto read = replpush::read_batch(*journal_, all, view_.number);
  const bool fits = bytes_of(read.batch) + kRoomInSegment <= cluster_.engine.segment_bytes;
  if (fits && ask.await.empty()) return read;
  if (!fits) ask.bytes = 1;
  return replpush::read_batch(*journal_, ask, view_.number);
}

void PushNode::perform(mover::ReadLog& e) {
  soon([this, ask = e]() mutable {
    auto read = read_log(std::move(ask));
    read.now = now();
    input(std::move(read));
  });
}

void PushNode::perform(mover::OpenSnapshot& e) {
  soon([this, e] {
    base::Result<model::LogPoint> from = base::fail(Code::not_found, "no such copy in the index");
    if (auto fresh = direct_->refresh(); !fresh)
      from = base::fail(fresh.error());
    else if (auto tenure = direct_->find(store::TenureId{e.partition, e.stream.own}); tenure && *tenure)
      from = (*tenure)->applied;
    direct_->release();
    input(mover::SnapshotOpened{now(), e.stream, e.ticket, std::move(from)});
  });
}

void PushNode::perform(mover::ReadSnapshot& e) {
  soon([this, e] {
    base::Result<mover::SnapshotChunk> out = mover::SnapshotChunk{};
    if (auto fresh = direct_->refresh(); !fresh) {
      out = base::fail(fresh.error());
    } else {
      store::SnapshotReader reader(*direct_, {e.partition, e.stream.own}, e.interval, e.after_key);
      auto chunk = reader.next(std::min(e.bytes, kReadMost));
      if (chunk)
        out = mover::SnapshotChunk{{std::make_shared<const std::string>(std::move(chunk->records)), chunk->count},
                                   chunk->through_key,
                                   chunk->last};
      else
        out = base::fail(chunk.error());
    }
    direct_->release();
    input(mover::SnapshotRead{now(), e.stream, e.ticket, std::move(out)});
  });
}

void PushNode::perform(mover::SendBegin& e) {
  cluster_.network.call(process_, e.to.name + "/partd", e.message, kCallTimeout,
                        [this, stream = e.stream, ticket = e.ticket](Network::Answer r) {
                          if (*here_) input(mover::Began{now(), stream, ticket, as<model::BulkBeginReply>(r)});
                        });
}

void PushNode::perform(mover::SendBlock& e) {
  auto message = e.message;
  if (e.records) message.records = *e.records;
  cluster_.network.call(process_, e.to.name + "/partd", std::move(message), kCallTimeout,
                        [this, stream = e.stream, ticket = e.ticket](Network::Answer r) {
                          if (!*here_) return;
                          mover::Confirmed in{now(), stream, ticket, status_of(r)};
                          if (auto reply = as<model::BulkBlockReply>(r)) in.delivered = std::move(reply->delivered);
                          input(std::move(in));
                        });
}

void PushNode::perform(mover::SendDigest& e) {
  cluster_.network.call(process_, e.to.name + "/partd", e.message, kCallTimeout,
                        [this, stream = e.stream, ticket = e.ticket](Network::Answer r) {
                          if (*here_) input(mover::Digested{now(), stream, ticket, as<model::DigestReply>(r)});
                        });
}

void PushNode::perform(mover::SendEnd& e) {
  cluster_.network.call(process_, e.to.name + "/partd", e.message, kCallTimeout,
                        [this, stream = e.stream, ticket = e.ticket](Network::Answer r) {
                          if (*here_) input(mover::EndTold{now(), stream, ticket, status_of(r)});
                        });
}

void PushNode::perform(mover::ReadProof& e) {
  soon([this, e] {
    base::Result<mover::ProofChunk> out = mover::ProofChunk{};
    const store::TenureId id{e.partition, e.own};
    if (auto fresh = direct_->refresh(); !fresh) {
      out = base::fail(fresh.error());
    } else if (auto tenure = direct_->find(id); !tenure || !*tenure) {
      out = base::fail(Code::not_found, "no such copy in the index");
    } else {
      store::ScanRange range;
      range.from = e.after_key.empty() ? e.interval.begin : e.after_key + '\0';
      range.to = e.interval.end;
      range.tombstones = true;
      range.records_max = static_cast<uint32_t>(e.entries);
      const auto end = direct_->scan(id, range, [&](std::string_view key, const store::Found& found) {
        out->entries.push_back({std::string(key), found.version});
        return true;
      });
      if (!end) {
        out = base::fail(end.error());
      } else {
        out->last = !end->more;
        out->through_key = out->entries.empty() ? e.after_key : out->entries.back().key;
        out->applied = (*tenure)->applied.lsn;
      }
    }
    direct_->release();
    input(mover::ProofRead{now(), e.own, e.ticket, std::move(out)});
  });
}

void PushNode::perform(mover::AskProof& e) {
  cluster_.network.call(process_, e.to.name + "/partd", e.message, kCallTimeout,
                        [this, own = e.own, ticket = e.ticket](Network::Answer r) {
                          if (*here_) input(mover::Proved{now(), own, ticket, as<model::DigestReply>(r)});
                        });
}

void PushNode::perform(mover::Drop& e) {
  model::DropRequest message;
  message.table = e.table;
  message.table_uuid = e.table_uuid;
  message.partition = e.partition;
  message.assignment = e.own;
  message.txnseq = e.txnseq;
  message.proved_to = e.end;
  cluster_.network.call(process_, host_.id.name + "/partd", message, kCallTimeout,
                        [this, own = e.own, ticket = e.ticket](Network::Answer r) {
                          if (*here_) input(mover::Dropped{now(), own, ticket, status_of(r)});
                        });
}

void PushNode::perform(mover::Note& e) { cluster_.scheduler.note("mover", host_.id.name, e.event, e.server, e.text); }

std::string PushNode::why(Instant at) const {
  if (!attached_) return "not attached";
  if (mover_.paused()) return "paused: " + mover_.paused_why();
  for (const auto& s : mover_.streams(at))
    if (!s.caught_up)
      return "stream to " + s.target.server.name + " " + s.state + " at " + std::to_string(s.mark.at.lsn.value) +
             " of " + std::to_string(s.log.end.lsn.value) + ": " + s.why;
  for (const auto& p : mover_.proofs())
    return "proof of " + to_string(p.held.assignment) + " " + p.state + ": " + p.why;
  return "";
}

}  // namespace cantle::sim
