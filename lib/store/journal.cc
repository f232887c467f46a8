#include "lib/store/journal.h"

#include <algorithm>
#include <cstring>

#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/testing.h"

namespace cantle::store {
namespace {

using base::Code;
using base::Status;

constexpr uint64_t kZeroChunk = uint64_t{1} << 20;
constexpr uint64_t kZeroSync = uint64_t{8} << 20;  // synced that often, so that a foreground sync never waits for much
constexpr size_t kCopyMax =
    size_t{8} << 10;                   // payloads up to here are copied beside their frames: fewer pieces to write
constexpr size_t kGroupReserve = 256;  // blocks
constexpr std::string_view kTemporary = "journal/next.tmp";
constexpr char kPadding[kFrameAlign] = {};

}  // namespace

base::Status zero(File& file, uint64_t from, uint64_t to) {
  const std::string zeros(static_cast<size_t>(std::min(kZeroChunk, to - std::min(from, to))), '\0');
  uint64_t unsynced = 0;
  for (uint64_t at = from; at < to;) {
    const auto n = std::min<uint64_t>(zeros.size(), to - at);
    TRY(file.write(at, std::string_view(zeros).substr(0, static_cast<size_t>(n))));
    at += n;
    unsynced += n;
    if (unsynced >= kZeroSync) {
      TRY(file.sync());
      unsynced = 0;
    }
  }
  return file.sync();
}

base::Result<std::shared_ptr<File>> make_segment(Disk& disk, uint64_t segment, uint64_t bytes, SegmentFill fill) {
  TRY_ASSIGN(auto made, disk.open(kTemporary, OpenMode::create));
  std::shared_ptr<File> file = std::move(made);
  TRY(file->truncate(0));
  const auto reserve = [&]() -> Status {
    TRY(file->reserve(bytes));
    return file->sync();
  };
  auto filled = fill == SegmentFill::reserve ? reserve() : zero(*file, 0, bytes);
  if (!filled) {
    // What was taken goes back: a full disk is not made fuller by trying.
    (void)file->truncate(0);
    return base::fail(std::move(filled).error());
  }
  CRASH_POINT("journal.segment_zeroed");
  TRY(disk.rename(kTemporary, segment_path(segment)));
  CRASH_POINT("journal.segment_named");
  if (!MUTANT("name_not_synced")) TRY(disk.sync_dir(kJournalDir));  // S64
  return file;
}

// Guards callbacks that come after the journal is gone.
struct Journal::Alive {};

struct Journal::Group {
  std::vector<JournalBlock> blocks;
  std::shared_ptr<File> file;
  JournalPosition end;
  Status result = base::ok();

  Status run();
};

// On the journal lane: frames, headers and small payloads are laid beside each other; large ones stay where they are.
Status Journal::Group::run() {
  size_t copied = 0;
  for (const auto& b : blocks)
    copied += kFrameAndHeader + kFrameAlign + (b.payload.size() <= kCopyMax ? b.payload.size() : 0);
  std::string staging;
  staging.reserve(copied);  // views into it must stay
  std::vector<std::string_view> parts;
  size_t start = 0;
  for (const auto& b : blocks) {
    const size_t at = staging.size();
    staging.resize(at + kFrameAndHeader);
    encode_frame(b.frame, staging.data() + at);
    if (b.payload.size() <= kCopyMax) {
      staging += b.payload;
    } else {
      parts.emplace_back(staging.data() + start, staging.size() - start);
      parts.emplace_back(b.payload);
      start = staging.size();
    }
    staging.append(kPadding, framed_size(b.payload.size()) - kFrameAndHeader - b.payload.size());
  }
  parts.emplace_back(staging.data() + start, staging.size() - start);
  CRASH_POINT("journal.before_write");
  TRY(file->write(blocks.front().frame.at.offset, parts));
  CRASH_POINT("journal.before_sync");
  if (MUTANT("ack_before_sync")) return base::ok();
  auto synced = file->sync();
  CRASH_POINT("journal.after_sync");
  if (MUTANT("ignore_sync_error")) return base::ok();
  return synced;
}

Journal::Journal(Disk& disk, Executor& executor, const JournalOptions& options, JournalHandlers handlers)
    : disk_(disk),
      executor_(executor),
      options_(options),
      handlers_(std::move(handlers)),
      alive_(std::make_shared<Alive>()) {}
Journal::~Journal() = default;

void Journal::start(const JournalPosition& head, std::shared_ptr<File> file, std::shared_ptr<File> ready) {
  head_ = durable_ = head;
  file_ = std::move(file);
  ready_ = std::move(ready);
  if (!ready_) make_ready();
}

void Journal::add(JournalBlock block) {
  CHECK(framed_size(block.payload.size()) <= options_.segment_bytes);
  queued_bytes_ += framed_size(block.payload.size());
  urgent_ = urgent_ || block.sync == Sync::now || queued_bytes_ >= kSoonMax;
  queue_.push_back(std::move(block));
}

bool Journal::has_room(uint64_t payload_bytes) const {
  if (!no_room_) return true;
  const uint64_t here = options_.segment_bytes - std::min(head_.offset, options_.segment_bytes);
  // What is queued may leave a rest at the end of this segment that nothing fits.
  const uint64_t need = queued_bytes_ + framed_size(payload_bytes);
  return need <= here || (ready_ != nullptr && need <= options_.segment_bytes / 2);
}

void Journal::pump() {
  if (writing_ || failed_ || queue_.empty()) return;
  if (!urgent_) return wait_for_more();
  if (head_.offset + framed_size(queue_.front().payload.size()) > options_.segment_bytes && !next_segment()) return;
  auto group = std::make_shared<Group>();
  group->file = file_;
  const uint64_t first = head_.sequence;
  uint64_t bytes = 0;
  const uint64_t most = std::min(options_.group_bytes_max, kStreamGroup);
  group->blocks.reserve(std::min(queue_.size(), kGroupReserve));
  while (!queue_.empty()) {
    const uint64_t size = framed_size(queue_.front().payload.size());
    if (head_.offset + size > options_.segment_bytes || (bytes > 0 && bytes + size > most)) break;
    auto& block = group->blocks.emplace_back(std::move(queue_.front()));
    queue_.pop_front();
    block.frame = {head_, first, block.header};
    head_ = block.frame.end();
    bytes += size;
  }
  group->end = head_;
  if (queue_.empty()) urgent_ = false;
  groups_here_++;
  write(std::move(group));
}

// What comes after the first one that waits goes with it.
void Journal::wait_for_more() {
  if (std::exchange(timer_, true)) return;
  executor_.after(kSyncSoon, [this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    timer_ = false;
    if (queue_.empty()) return;
    urgent_ = true;
    pump();
  });
}

bool Journal::next_segment() {
  if (!ready_) {
    make_ready();
    return false;
  }
  fill_ = streaming() ? SegmentFill::reserve : SegmentFill::zeros;
  file_ = std::exchange(ready_, nullptr);
  head_ = {head_.segment + 1, 0, head_.sequence};
  groups_here_ = 0;
  make_ready();
  return true;
}

void Journal::write(std::shared_ptr<Group> group) {
  writing_ = true;
  executor_.run(
      Lane::journal, [group] { group->result = group->run(); },
      [this, group, alive = std::weak_ptr(alive_)] {
        if (!alive.expired()) written(group);
      });
}

void Journal::written(const std::shared_ptr<Group>& group) {
  writing_ = false;
  if (failed_) return;
  if (!group->result) return fail(group->result.error());
  for (const auto& b : group->blocks) queued_bytes_ -= framed_size(b.payload.size());
  syncs_++;
  durable_ = group->end;
  pump();  // the next group is on its way while this one's news are told
  handlers_.durable(std::move(group->blocks), group->file);
}

void Journal::make_ready() {
  if (making_ || failed_) return;
  making_ = true;
  struct Made {
    uint64_t segment = 0, from = 0;
    base::Result<std::shared_ptr<File>> file = base::fail(Code::cancelled, "");
    std::vector<uint64_t> remove;
  };
  auto made = std::make_shared<Made>();
  made->segment = head_.segment + 1;
  while (retired_.size() > kRecycleMax) {
    made->remove.push_back(retired_.front());
    retired_.pop_front();
  }
  if (!retired_.empty()) {
    made->from = retired_.front();
    retired_.pop_front();
  }
  auto task = [made, &disk = disk_, bytes = options_.segment_bytes, fill = fill_] {
    const auto recycle = [&]() -> base::Result<std::shared_ptr<File>> {
      TRY_ASSIGN(auto file, disk.open(segment_path(made->from), OpenMode::write));
      TRY_ASSIGN(const auto size, file->size());
      if (size != bytes) {  // of another configuration
        TRY(disk.remove(segment_path(made->from)));
        return make_segment(disk, made->segment, bytes, fill);
      }
      TRY(disk.rename(segment_path(made->from), segment_path(made->segment)));
      CRASH_POINT("journal.segment_recycled");
      if (!MUTANT("name_not_synced")) TRY(disk.sync_dir(kJournalDir));  // S64
      return std::shared_ptr<File>(std::move(file));
    };
    for (const auto old : made->remove) (void)disk.remove(segment_path(old));
    made->file = made->from != 0 ? recycle() : make_segment(disk, made->segment, bytes, fill);
  };
  executor_.run(Lane::background, std::move(task), [this, made, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    making_ = false;
    if (!made->file && made->file.error().code != Code::no_space) return fail(made->file.error());
    no_room_ = !made->file;
    if (made->file) ready_ = *made->file;
    handlers_.changed();
    pump();
  });
}

void Journal::retire(uint64_t segment) { retired_.push_back(segment); }

void Journal::tick() {
  if (no_room_) make_ready();
  if (making_ || retired_.size() <= kRecycleMax) return;
  std::vector<uint64_t> remove;
  while (retired_.size() > kRecycleMax) {
    remove.push_back(retired_.front());
    retired_.pop_front();
  }
  executor_.run(
      Lane::background,
      [remove, &disk = disk_] {
        for (const auto old : remove) (void)disk.remove(segment_path(old));
      },
      nullptr);
}

void Journal::fail(const base::Error& error) {
  if (failed_) return;
  failed_ = true;
  handlers_.failed(error);
}

}  // namespace cantle::store
