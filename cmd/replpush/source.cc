#include "cmd/replpush/source.h"

#include <atomic>
#include <thread>
#include <utility>

#include "cmd/replpush/log_batch.h"
#include "lib/base/log.h"
#include "lib/base/testing.h"
#include "lib/io/loop.h"
#include "lib/store/direct_reader.h"
#include "lib/store/executor.h"
#include "lib/store/journal_reader.h"
#include "lib/store/live_page.h"
#include "lib/store/position_store.h"

namespace cantle::replpush {

using base::Code;
using base::Status;
using store::Lane;

namespace {

constexpr Lane kLog = Lane::journal, kIndex = Lane::background, kPositions = Lane::apply;
constexpr int kPageWaitMs = 200;
constexpr size_t kHoldsMax = size_t{1} << 20;
constexpr std::string_view kPushLock = "push/replpush.lock", kHolds = "push/holds";

store::PositionKey key_of(const mv::MarkKey& k) { return {k.own, k.target}; }

// What one lane thread has open; touched on that thread only.
struct Readers {
  std::unique_ptr<store::JournalReader> journal;
  std::unique_ptr<store::DirectReader> direct;
};

}  // namespace

struct Source::Impl : std::enable_shared_from_this<Source::Impl> {
  Impl(io::Loop& l, std::string data, std::string index_at)
      : loop(l),
        data_dir(std::move(data)),
        index_dir(std::move(index_at)),
        disk(data_dir),
        lanes(std::make_unique<store::ThreadExecutor>([&l](store::Executor::Fn fn) { l.post(std::move(fn)); },
                                                      [&l](store::Executor::Fn fn) { l.defer(std::move(fn)); }, 0)) {}
  ~Impl() {
    stop_waiting();
    lanes.reset();
  }

  // `task` on the lane, `done` with its result on the loop, unless this is gone by then.
  template <class T>
  void run(Lane lane, std::function<T()> task, std::function<void(T)> done) {
    auto result = std::make_shared<std::optional<T>>();
    lanes->run(
        lane, [task = std::move(task), result] { result->emplace(task()); },
        [done = std::move(done), result, weak = weak_from_this()] {
          if (const auto alive = weak.lock()) done(std::move(**result));
        });
  }

  void wait_on(std::shared_ptr<store::LivePage> p, std::function<void()> moved);
  void stop_waiting();
  void write_marks();

  io::Loop& loop;
  std::string data_dir, index_dir;
  store::RealDisk disk;
  std::unique_ptr<store::FileLock> lock;
  Readers log, index;                               // of their lanes
  std::unique_ptr<store::PositionStore> positions;  // of its lane
  std::shared_ptr<store::LivePage> page;
  model::Incarnation incarnation;
  std::function<void(base::Error)> fatal;

  std::thread waiter;
  std::shared_ptr<std::atomic<bool>> waiting;
  std::map<mv::MarkKey, mv::RecordMark> unwritten;  // the newest of each
  bool writing = false;
  std::unique_ptr<store::ThreadExecutor> lanes;  // last: its threads end first
};

Source::Source(io::Loop& loop, std::string data_dir, std::string index_dir)
    : impl_(std::make_shared<Impl>(loop, std::move(data_dir), std::move(index_dir))) {}
Source::~Source() { impl_->stop_waiting(); }

base::Result<store::Identity> Source::identity() { return store::DataDir::read(impl_->disk); }

Status Source::open_positions() {
  auto& im = *impl_;
  TRY(im.disk.make_dir(store::kPositionsDir));
  auto lock = im.disk.lock(kPushLock);
  if (!lock) return base::fail(std::move(lock).error().wrap("another replpush works on " + im.data_dir));
  im.lock = std::move(*lock);
  TRY_ASSIGN(im.positions, store::PositionStore::open(im.data_dir, true));
  return base::ok();
}

base::Result<std::string> Source::read_holds() {
  auto text = impl_->disk.read_whole(kHolds, kHoldsMax);
  if (!text && text.error().code == Code::not_found) return std::string();
  return text;
}
Status Source::write_holds(const std::string& text) { return impl_->disk.write_whole(kHolds, text); }
void Source::on_fatal(std::function<void(base::Error)> fn) { impl_->fatal = std::move(fn); }

// --- The partd's life --------------------------------------------------------------------------------

void Source::attach(model::Incarnation incarnation, std::function<void()> moved, Done<Status> done) {
  auto& im = *impl_;
  im.stop_waiting();
  im.page.reset();
  auto page = store::LivePage::attach(im.disk);
  if (!page) return im.loop.defer([done = std::move(done), e = page.error()] { done(base::fail(e)); });
  const auto state = (*page)->read();
  if (!state.valid || state.incarnation != incarnation)
    return im.loop.defer(
        [done = std::move(done)] { done(base::fail(Code::unavailable, "the partition server is starting")); });
  im.page = std::move(*page);
  im.incarnation = incarnation;
  im.wait_on(im.page, std::move(moved));
  // Another life may have cut its journal and rebuilt its index: both are opened anew.
  im.run<Status>(
      kLog,
      [&im]() -> Status {
        im.log = {};
        TRY_ASSIGN(im.log.journal, store::JournalReader::open(im.disk));
        TRY_ASSIGN(im.log.direct, store::DirectReader::open(im.data_dir, im.index_dir));
        im.log.direct->release();  // opening took a snapshot; nobody keeps one between two turns (R11)
        return base::ok();
      },
      [self = impl_.get(), done = std::move(done)](Status log) {
        if (!log) return done(log);
        self->run<Status>(
            kIndex,
            [self]() -> Status {
              self->index = {};
              TRY_ASSIGN(self->index.direct, store::DirectReader::open(self->data_dir, self->index_dir));
              self->index.direct->release();
              return base::ok();
            },
            done);
      });
}

void Source::detach() {
  impl_->stop_waiting();
  impl_->page.reset();
}

void Source::Impl::wait_on(std::shared_ptr<store::LivePage> p, std::function<void()> moved) {
  waiting = std::make_shared<std::atomic<bool>>(true);
  // One notice under way at a time: a busy journal moves thousands of times a second. What moves after the notice was
  // posted and before the loop takes it is told by it: the loop looks at the page only then.
  auto pending = std::make_shared<std::atomic<bool>>(false);
  waiter = std::thread([this, p, go = waiting, pending, moved = std::move(moved)] {
    uint32_t seen = p->read().changes;
    while (go->load()) {
      p->wait(seen, kPageWaitMs);
      const uint32_t now = p->read().changes;
      if (now == seen || !go->load()) continue;
      seen = now;  // in any case: to wait for less would be to spin until the loop has come to it
      if (pending->exchange(true)) continue;
      loop.post([go, pending, moved] {
        pending->exchange(false);  // and not store(): what the thread saw before its exchange, moved() sees
        if (go->load()) moved();
      });
    }
  });
}

void Source::Impl::stop_waiting() {
  if (waiting) waiting->store(false);
  if (waiter.joinable()) waiter.join();
  waiting.reset();
}

// --- The log -----------------------------------------------------------------------------------------

namespace {

// From what the index has applied, where the journal has no block of the log (any more).
std::optional<mv::LogState> applied_state(store::DirectReader& direct, const model::HeldPartition& held) {
  auto tenure = direct.find(store::TenureId{held.partition, held.assignment});
  if (!tenure || !*tenure) return std::nullopt;
  mv::LogState state;
  state.end =
      std::max((*tenure)->applied, (*tenure)->log_start, [](const auto& a, const auto& b) { return a.lsn < b.lsn; });
  state.oldest = state.end.lsn.next();
  return state;
}

}  // namespace

void Source::logs(std::vector<model::HeldPartition> held, Done<Logs> done) {
  auto self = impl_;
  if (!self->page)
    return self->loop.defer([done] { done({base::fail(Code::unavailable, "no partition server"), {}}); });
  self->run<Logs>(
      kLog,
      [self = self.get(), page = self->page, incarnation = self->incarnation, held = std::move(held)] {
        Logs out;
        const auto state = page->read();
        if (!self->log.journal || !state.valid || state.incarnation != incarnation) {
          out.status = base::fail(Code::unavailable, "the partition server is starting");
          return out;
        }
        if (held.empty()) return out;  // of quorum tables alone it reads nothing here
        out.status = self->log.journal->advance(state.durable);
        if (!out.status) return out;
        bool fresh = false;
        for (const auto& h : held) {
          if (add_logs(*self->log.journal, h.partition, &out.logs)) continue;
          if (!fresh && !self->log.direct->refresh()) continue;
          fresh = true;
          if (auto s = applied_state(*self->log.direct, h)) out.logs[h.partition] = *s;
        }
        if (fresh) self->log.direct->release();
        return out;
      },
      std::move(done));
}

std::vector<std::pair<mv::StreamId, model::LogPoint>> Source::live(const std::vector<mv::StreamId>& streams) {
  std::vector<std::pair<mv::StreamId, model::LogPoint>> out;
  if (!impl_->page) return out;
  for (const auto& id : streams)
    if (auto point = impl_->page->confirmed({id.own, id.target})) out.emplace_back(id, *point);
  return out;
}

void Source::read_log(mv::ReadLog ask, model::ServerNumber number, Done<mv::LogRead> done) {
  auto self = impl_.get();
  self->run<mv::LogRead>(
      kLog,
      [self, ask = std::move(ask), number] {
        if (self->log.journal) return read_batch(*self->log.journal, ask, number);
        mv::LogRead out;
        out.stream = ask.stream;
        out.ticket = ask.ticket;
        out.end = mv::ReadEnd::failed;
        out.error = "the journal is not open";
        return out;
      },
      std::move(done));
}

// --- The index ---------------------------------------------------------------------------------------

namespace {

// One turn of reading: a fresh snapshot of the index, let go at the end (R11).
template <class T, class Fn>
base::Result<T> with_index(store::DirectReader* direct, Fn fn) {
  if (direct == nullptr) return base::fail(Code::unavailable, "the index is not open");
  TRY(direct->refresh());
  auto result = fn(*direct);
  direct->release();
  return result;
}

base::Result<store::Tenure> need_tenure(store::DirectReader& direct, const store::TenureId& id) {
  TRY_ASSIGN(auto tenure, direct.find(id));
  if (!tenure) return base::fail(Code::not_found, "the index does not have the copy yet");
  return std::move(*tenure);
}

}  // namespace

void Source::open_snapshot(mv::OpenSnapshot ask, Done<mv::SnapshotOpened> done) {
  auto self = impl_.get();
  self->run<mv::SnapshotOpened>(
      kIndex,
      [self, ask] {
        auto from =
            with_index<model::LogPoint>(self->index.direct.get(), [&](auto& direct) -> base::Result<model::LogPoint> {
              TRY_ASSIGN(auto tenure, need_tenure(direct, {ask.partition, ask.stream.own}));
              return tenure.applied;
            });
        return mv::SnapshotOpened{{}, ask.stream, ask.ticket, std::move(from)};
      },
      std::move(done));
}

void Source::read_snapshot(mv::ReadSnapshot ask, Done<mv::SnapshotRead> done) {
  auto self = impl_.get();
  self->run<mv::SnapshotRead>(
      kIndex,
      [self, ask = std::move(ask)] {
        auto chunk = with_index<mv::SnapshotChunk>(
            self->index.direct.get(), [&](auto& direct) -> base::Result<mv::SnapshotChunk> {
              store::SnapshotReader reader(direct, {ask.partition, ask.stream.own}, ask.interval, ask.after_key);
              TRY_ASSIGN(auto c, reader.next(ask.bytes));
              mv::SnapshotChunk out;
              out.records = {std::make_shared<const std::string>(std::move(c.records)), c.count};
              out.through_key = std::move(c.through_key);
              out.last = c.last;
              return out;
            });
        return mv::SnapshotRead{{}, ask.stream, ask.ticket, std::move(chunk)};
      },
      std::move(done));
}

void Source::read_proof(mv::ReadProof ask, Done<mv::ProofRead> done) {
  auto self = impl_.get();
  self->run<mv::ProofRead>(
      kIndex,
      [self, ask = std::move(ask)] {
        auto chunk =
            with_index<mv::ProofChunk>(self->index.direct.get(), [&](auto& direct) -> base::Result<mv::ProofChunk> {
              const store::TenureId id{ask.partition, ask.own};
              TRY_ASSIGN(auto tenure, need_tenure(direct, id));
              mv::ProofChunk out;
              out.applied = tenure.applied.lsn;
              store::ScanRange range;
              range.from = ask.after_key.empty() ? ask.interval.begin : ask.after_key + '\0';
              range.to = ask.interval.end;
              range.tombstones = true;
              range.records_max = static_cast<uint32_t>(ask.entries);
              range.bytes_max = size_t{64} << 20;  // values are passed over, not copied
              TRY_ASSIGN(auto end, direct.scan(id, range, [&](std::string_view key, const store::Found& found) {
                out.entries.push_back({std::string(key), found.version});
                return true;
              }));
              out.last = !end.more;
              out.through_key = out.entries.empty() ? ask.after_key : out.entries.back().key;
              return out;
            });
        return mv::ProofRead{{}, ask.own, ask.ticket, std::move(chunk)};
      },
      std::move(done));
}

// --- Positions ---------------------------------------------------------------------------------------

void Source::load_mark(mv::LoadMark ask, Done<mv::MarkLoaded> done) {
  impl_->write_marks();
  auto self = impl_.get();
  self->run<mv::MarkLoaded>(
      kPositions,
      [self, ask = std::move(ask)] {
        mv::MarkLoaded out{{}, ask.stream, ask.ticket, {}};
        for (const auto& key : ask.keys) {
          auto p = self->positions->get(key_of(key));
          if (!p || !*p || (*p)->server != key.server) continue;  // unreadable: from zero, which costs digests only
          out.found.push_back({key, {(*p)->confirmed, (*p)->snapshot, (*p)->snapshot_from}});
        }
        return out;
      },
      std::move(done));
}

void Source::record_mark(mv::RecordMark mark) {
  impl_->unwritten[mark.key] = std::move(mark);
  if (!impl_->writing) impl_->write_marks();
}

// All that gathered while the last transaction was written goes into the next one.
void Source::Impl::write_marks() {
  if (unwritten.empty()) return;
  std::vector<std::pair<store::PositionKey, store::Position>> batch;
  for (auto& [key, m] : unwritten) {
    store::Position p;
    p.partition = m.partition;
    p.target_partition = m.target_partition;
    p.server = key.server;
    p.confirmed = m.mark.at;
    p.snapshot = m.mark.snapshot;
    p.snapshot_from = m.mark.snapshot_from;
    batch.emplace_back(key_of(key), std::move(p));
  }
  unwritten.clear();
  writing = true;
  run<Status>(
      kPositions,
      [this, batch = std::move(batch)] {
        CRASH_POINT("replpush.before_positions");
        auto status = positions->put(batch);
        CRASH_POINT("replpush.after_positions");
        return status;
      },
      [this](Status status) {
        writing = false;
        if (!status && status.error().code == Code::no_space)  // a position that is lost only costs sending again
          base::log(base::Level::warn, "positions", {{"error", base::to_string(status.error())}});
        else if (!status && fatal)
          return fatal(base::Error(status.error()).wrap("recording positions"));
        write_marks();
      });
}

void Source::forget_mark(mv::MarkKey key) {
  impl_->unwritten.erase(key);
  auto self = impl_.get();
  self->run<Status>(
      kPositions, [self, key] { return self->positions->remove(key_of(key)); }, [](Status) {});
}

void Source::list_marks(Done<std::vector<mv::MarkKey>> done) {
  auto self = impl_.get();
  self->run<std::vector<mv::MarkKey>>(
      kPositions,
      [self] {
        std::vector<mv::MarkKey> keys;
        if (auto all = self->positions->all())
          for (const auto& [key, p] : *all) keys.push_back({key.own, p.server, key.target});
        return keys;
      },
      std::move(done));
}

void Source::flush(std::function<void()> done) {
  impl_->write_marks();
  impl_->run<bool>(
      kPositions, [] { return true; }, [done = std::move(done)](bool) { done(); });
}

}  // namespace cantle::replpush
