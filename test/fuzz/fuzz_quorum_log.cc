// A quorum table's logs in a store whose leader sends whatever it likes: blocks of every kind with any header and
// payload, cuts of the log, seals, divides, parts of snapshots; the power fails in between, bytes turn, the index is
// lost, and frames of any kind stand in the journal that nobody would have written.
//
// The input is a list of steps.
//
// What holds whatever comes
//   * A block that is taken is one of a log, and follows; a cut or an uncut that is taken names its attempt.
//   * Until something is damaged: a log is what was taken, as long as it was called durable; its epochs and its open
//     cut are what its blocks say, over restarts, divides, snapshots and cuts; and it reads back as it was taken, also
//     by who reads the journal alone.
//   * Whatever is damaged: commit and durable lie within the log, epochs and cuts ascend, no promise is above the
//     highest epoch, and the store opens, or says why not.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/check.h"
#include "lib/base/log.h"
#include "lib/base/random.h"
#include "lib/model/cut.h"
#include "lib/store/divide.h"
#include "lib/store/engine.h"
#include "lib/store/journal_format.h"
#include "lib/store/journal_reader.h"
#include "lib/store/live_page.h"
#include "lib/store/mem_index.h"
#include "lib/store/rows.h"
#include "lib/wire/block.h"
#include "test/unit/store/mem_disk.h"

namespace {

using namespace cantle;
using model::BlockHeader;
using model::BlockKind;
using model::LogPoint;
using model::Lsn;

constexpr uint64_t kSegment = 16 << 10;
constexpr int kStepsMax = 120;
constexpr uint8_t kPartitionsMax = 12;

class Steps {
 public:
  Steps(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto b = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    return b;
  }
  std::string text() {
    const auto n = std::min<size_t>(byte(), rest_.size());
    const auto t = std::string(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return t;
  }
  bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

struct Clock final : base::Clock {
  base::Instant at{std::chrono::seconds(100)};
  base::Instant now() override { return at; }
  base::WallMs wall_ms() override { return 1700000000000 + static_cast<uint64_t>(base::to_ms(at.since_boot)); }
};

template <class Id>
Id id_of(uint8_t n) {
  Id id;
  id.bytes.fill(n);
  return id;
}
model::PartitionId partition(uint8_t n) { return id_of<model::PartitionId>(n); }

constexpr BlockKind kKinds[] = {BlockKind::data,  BlockKind::epoch_start, BlockKind::cut,       BlockKind::uncut,
                                BlockKind::seal,  BlockKind::truncate,    BlockKind::divide,    BlockKind::root_image,
                                BlockKind::merge, BlockKind::mended_data, BlockKind::mended_cut};

// One copy's log, as it was taken.
struct Copy {
  LogPoint begin;  // what stands before was a parent's, or a snapshot's
  std::vector<model::EpochStart> before;
  std::vector<model::Block> blocks;
  LogPoint durable;
  LogPoint end() const { return blocks.empty() ? begin : point_of(blocks.back().header); }
  void keep(Lsn lsn) {
    while (!blocks.empty() && blocks.back().header.last() > lsn) blocks.pop_back();
    if (durable.lsn > lsn) durable = end();
  }
  bool has(const LogPoint& point) const {
    return point == begin ||
           std::any_of(blocks.begin(), blocks.end(), [&](const auto& b) { return point_of(b.header) == point; });
  }
  std::vector<model::EpochStart> epochs() const {
    auto out = before;
    for (const auto& b : blocks)
      if (out.empty() || out.back().epoch < b.header.epoch) out.push_back({b.header.epoch, b.header.first});
    return out;
  }
  std::optional<model::CutMark> open_cut() const {
    std::optional<model::CutMark> last;
    for (const auto& b : blocks)
      if (auto mark = model::cut_mark(b.header, b.payload)) last = mark;
    return last && last->open ? last : std::nullopt;
  }
};

class Machine {
 public:
  explicit Machine(Steps& steps) : in_(steps) {
    config_.segment_bytes = kSegment;
    config_.overlay_bytes = 48 << 10;
    config_.reserve_bytes = 1 << 20;
    config_.checkpoint_interval = std::chrono::seconds(1);
    config_.tail_bytes = 500;
  }

  void run() {
    if (!open()) return;
    CHECK(engine_->create(
        {{partition(1), id_of<model::AssignmentId>(1)}, id_of<model::TableUuid>(7), {1}, {}, store::LogMode::quorum},
        nullptr));
    lanes_->run_all();
    copies_[1];
    for (int n = 0; n < kStepsMax && !in_.done() && engine_; n++) {
      step();
      if (engine_) look();
    }
    if (engine_) restart(false);
    if (engine_) look();
  }

 private:
  // --- lives -------------------------------------------------------------------------------------
  bool open() {
    engine_.reset();
    lanes_ = std::make_unique<store::InlineExecutor>();
    failed_ = false;
    incarnation_ = incarnation_.next();
    auto live = store::LivePage::create(disk_, incarnation_);
    CHECK(live);
    live_ = std::move(*live);
    auto opened = store::Engine::open({disk_, factory_, *lanes_, clock_, live_.get()}, config_,
                                      {{"p1"}, id_of<model::ClusterUuid>(9), incarnation_, {1}});
    if (!opened) {
      CHECK(!sound_);
      return false;
    }
    engine_ = std::move(*opened);
    engine_->on_fatal([this](const base::Error&) { failed_ = true; });
    return true;
  }
  // The power fails; of what was not synced some sectors may be there.
  void restart(bool torn) {
    base::SeededRandom random(in_.byte());
    const bool moving = moving_;
    engine_.reset();
    lanes_.reset();
    disk_.crash(torn ? &random : nullptr);
    moving_ = false;
    if (!open()) return;
    if (moving) sound_ = false;  // a cut or a divide may have been lost; what is there then, the unit tests say
    if (sound_) found();
  }
  // Each log is what was taken, from its beginning on, and not shorter than what was called durable.
  void found() {
    for (auto& [p, copy] : copies_) {
      const auto log = engine_->quorum_log(partition(p));
      CHECK(log);
      CHECK(log->whole && copy.has(log->end) && log->end.lsn >= copy.durable.lsn);
      copy.keep(log->end.lsn);
      copy.durable = log->end;
    }
  }
  void settle() {
    lanes_->run_all();
    moving_ = false;
  }
  void damage() { sound_ = false; }

  // --- what always holds -------------------------------------------------------------------------
  void look() {
    if (failed_) {
      CHECK(!sound_);
      restart(false);
      if (!engine_) return;
    }
    for (uint8_t p = 1; p <= kPartitionsMax; p++) {
      const auto log = engine_->quorum_log(partition(p));
      if (!log) continue;
      CHECK(log->durable.lsn <= log->end.lsn && log->commit <= log->end.lsn && log->visible <= log->end.lsn);
      CHECK(log->promised <= log->highest);
      for (size_t n = 1; n < log->epochs.size(); n++)
        CHECK(log->epochs[n - 1].epoch < log->epochs[n].epoch && log->epochs[n - 1].first < log->epochs[n].first);
      for (size_t n = 0; n < log->cuts.size(); n++) {
        CHECK(log->cuts[n].at.lsn <= log->end.lsn);
        CHECK(n == 0 || log->cuts[n - 1].at.lsn < log->cuts[n].at.lsn);
      }
      if (!sound_) continue;
      const auto it = copies_.find(p);
      CHECK(it != copies_.end());
      const auto& copy = it->second;
      CHECK(log->end == copy.end());
      CHECK(log->epochs == copy.epochs());
      CHECK(model::CutTable(log->cuts).open() == copy.open_cut());
    }
  }

  // --- steps -------------------------------------------------------------------------------------
  void step() {
    const uint8_t op = in_.byte();
    pick(op >> 4);
    switch (op & 15) {
      case 0: return take(in_.byte());
      case 1: return take(0);
      case 2: return build();
      case 3: (void)engine_->commit(partition(p_), {in_.byte()}); return;
      case 4: (void)engine_->seal(partition(p_), {in_.byte()}, nullptr); return;
      case 5: return truncate();
      case 6: return divide();
      case 7: return settle();
      case 8:
        for (int n = in_.byte() % 8; n > 0 && lanes_->step(); n--) {
        }
        return;
      case 9:
        clock_.at = clock_.at + std::chrono::milliseconds(20 * in_.byte());
        engine_->tick();
        return;
      case 10: return restart(false);
      case 11: return restart(true);
      case 12: return flip();
      case 13: return frame();
      case 14: return snapshot();
      default: return read();
    }
  }
  void pick(int n) {
    std::vector<uint8_t> there;
    for (uint8_t p = 1; p <= kPartitionsMax; p++)
      if (engine_->quorum_log(partition(p))) there.push_back(p);
    p_ = there.empty() ? uint8_t{1} : there[static_cast<size_t>(n) % there.size()];
  }
  LogPoint end() const {
    const auto log = engine_->quorum_log(partition(p_));
    return log ? log->end : LogPoint{};
  }

  // A payload that this kind of block may have, or any.
  std::string payload(BlockKind kind, uint8_t how, model::Epoch epoch, Lsn first) {
    if ((how & 1) != 0) return in_.text();
    if (model::is_cut_mark(kind)) return model::cut_payload(id_of<model::AttemptId>(in_.byte()));
    if (kind != BlockKind::data) return "";
    const auto key = "k" + std::to_string(in_.byte() % 40);
    const auto value = in_.text();
    model::RecordView r;
    r.key = key;
    r.value = value;
    if ((how & 2) != 0) {
      r.client = 1 + in_.byte() % 3;
      r.series = 1 + in_.byte();
      r.flags = in_.byte();
    }
    std::string out;
    wire::append_record(out, r);
    CHECK(wire::stamp_records(out, epoch, first));
    return out;
  }

  // `twist`: what of its header is not as it should be.
  void take(uint8_t twist) {
    const auto before = end();
    model::Block block;
    auto& h = block.header;
    const uint8_t kind = in_.byte();
    h.kind = kKinds[kind % std::size(kKinds)];
    h.partition = partition(p_);
    h.region = {p_};
    h.epoch = before.epoch;
    if ((kind & 16) != 0 || h.epoch.value == 0) h.epoch.value += 1 + in_.byte() % 4;
    h.first = before.lsn.next();
    h.records = 1;
    h.prev_epoch = before.epoch;
    h.prev_lsn = before.lsn;
    h.prev_crc = before.crc;
    h.commit = engine_->quorum_log(partition(p_)) ? engine_->quorum_log(partition(p_))->commit : Lsn{};
    h.elapsed_ms = in_.byte();
    block.payload = payload(h.kind, kind >> 5, h.epoch, h.first);
    if ((twist & 1) != 0) h.prev_lsn.value += static_cast<int8_t>(in_.byte());
    if ((twist & 2) != 0) h.epoch.value = in_.byte();
    if ((twist & 4) != 0) h.commit.value = in_.byte();
    if ((twist & 8) != 0) h.records = in_.byte();
    if ((twist & 16) != 0) h.first.value += static_cast<int8_t>(in_.byte());
    if ((twist & 32) != 0) h.elapsed_ms = uint64_t{in_.byte()} << 12;
    if ((twist & 64) != 0) h.prev_epoch.value = in_.byte();
    wire::seal_block(h, block.payload);
    if ((twist & 128) != 0) h.header_crc ^= in_.byte();
    take(block);
  }
  void take(const model::Block& block) {
    const auto before = end();
    const auto& h = block.header;
    const auto taken = engine_->take(h.partition, h, block.payload, durable());
    if (!taken) return;
    CHECK(*taken == point_of(h) && model::is_log_block(h.kind) && h.commit < h.first);
    if (h.last() <= before.lsn) {  // it was there
      CHECK(!sound_ || copies_.at(p_).has(*taken));
      return;
    }
    CHECK(before_of(h) == before && h.first == before.lsn.next() && h.epoch >= before.epoch);
    CHECK(!model::is_cut_mark(h.kind) || model::attempt_of_cut(block.payload));
    copies_[p_].blocks.push_back(block);
  }
  void build() {
    const auto before = end();
    const uint8_t how = in_.byte();
    store::BuildSpec spec;
    spec.kind = kKinds[how % std::size(kKinds)];
    spec.epoch = {before.epoch.value + (how >> 3) % 2};
    spec.commit = {in_.byte()};
    auto bytes = payload(spec.kind, how >> 5, spec.epoch, before.lsn.next());
    const auto built = engine_->build(partition(p_), spec, bytes, durable());
    if (!built) return;
    CHECK(model::is_log_block(built->kind) && built->first == before.lsn.next());
    CHECK(!model::is_cut_mark(built->kind) || model::attempt_of_cut(bytes));
    copies_[p_].blocks.push_back({*built, std::move(bytes)});
  }
  store::Engine::Taken durable() {
    return [this, p = p_](const base::Result<LogPoint>& point) {
      if (!point || !copies_.contains(p)) return;
      auto& copy = copies_.at(p);
      CHECK(!sound_ || copy.has(*point) || copy.begin.lsn >= point->lsn);
      if (copy.durable.lsn < point->lsn) copy.durable = *point;
    };
  }
  void truncate() {
    const auto keep = engine_->point_at(partition(p_), {in_.byte()}).value_or(LogPoint{});
    if (!engine_->truncate(partition(p_), keep, nullptr)) return;
    copies_[p_].keep(keep.lsn);
    moving_ = true;
  }

  void divide() {
    const auto log = engine_->quorum_log(partition(p_));
    if (!log) return;
    const uint8_t how = in_.byte();
    auto at = engine_->point_at(partition(p_), {in_.byte()}).value_or(LogPoint{});
    if (const auto cut = model::CutTable(log->cuts).open(); cut && (how & 1) != 0) at = cut->at;
    const uint8_t next = next_;
    if (next + 1 > kPartitionsMax) return;
    store::ChildSpec low{partition(next), {next}, {}}, high{partition(next + 1), {next + 1U}, {}};
    if ((how & 2) == 0) low.assignment = id_of<model::AssignmentId>(next);
    if ((how & 4) == 0) high.assignment = id_of<model::AssignmentId>(next + 1);
    const auto point = "k" + std::to_string(in_.byte() % 40);
    if ((how & 8) != 0) settle();
    const auto divided = engine_->divide_at(partition(p_), at, id_of<model::AttemptId>(how), point, low, high, nullptr);
    if (!divided) {  // what is behind it may have been cut, for the next call
      if (end() == log->end) return;
      copies_[p_].keep(end().lsn);
      moving_ = true;
      return;
    }
    CHECK(*divided == at && !engine_->quorum_log(partition(p_)));
    next_ += 2;
    moving_ = true;
    Copy child;
    if (sound_) {
      const auto& parent = copies_.at(p_);
      CHECK(parent.has(at));
      auto log_then = parent;
      log_then.keep(at.lsn);
      child.before = log_then.epochs();
    }
    child.begin = child.durable = at;
    for (const auto* c : {&low, &high})
      if (!c->assignment.none()) copies_[static_cast<uint8_t>(c->region.value)] = child;
    copies_.erase(p_);
  }

  // A bit of the journal turns while the power is off.
  void flip() {
    const uint8_t which = in_.byte(), high = in_.byte(), low = in_.byte();
    if ((which & 1) != 0) settle();
    std::vector<std::string> paths;
    for (const auto& [name, node] : disk_.files)
      if (name.starts_with("journal/") && !node->now.empty()) paths.push_back(name);
    if (paths.empty()) return;
    const auto& path = paths[(which >> 2) % paths.size()];
    disk_.flip(path, (static_cast<size_t>(high) << 8 | low) % disk_.bytes(path).size());
    damage();
    if ((which & 2) != 0) files_.damaged = "lost";
    restart(false);
  }
  // A frame in its right place, with right checksums, and in it what nobody writes.
  void frame() {
    settle();
    const auto head = engine_->status().head;
    store::Frame f;
    f.at = head;
    f.group = head.sequence;
    auto& h = f.header;
    const uint8_t kind = in_.byte();
    h.kind = kKinds[kind % std::size(kKinds)];
    h.partition = partition(p_);
    h.region = {p_};
    h.epoch = {in_.byte()};
    const auto before = end();
    if (model::is_log_block(h.kind)) {
      h.first = {before.lsn.value + in_.byte()};
      h.records = 1;
    }
    h.prev_epoch = before.epoch;
    h.prev_lsn = (kind & 16) != 0 ? Lsn{in_.byte()} : before.lsn;
    h.prev_crc = before.crc;
    const auto bytes = (kind & 32) != 0 ? note() : payload(h.kind, kind >> 6, h.epoch, h.first);
    wire::seal_block(h, bytes);
    auto& segment = disk_.bytes(store::segment_path(head.segment));
    if (head.offset + store::framed_size(bytes.size()) > segment.size()) return;
    char start[store::kFrameAndHeader];
    store::encode_frame(f, start);
    auto& node = *disk_.files.at(store::segment_path(head.segment));
    for (auto* file : {&node.now, &node.synced}) {
      if (file->size() < segment.size()) file->resize(segment.size());
      std::copy(start, start + sizeof start, file->begin() + static_cast<long>(head.offset));
      std::copy(bytes.begin(), bytes.end(), file->begin() + static_cast<long>(head.offset + sizeof start));
    }
    damage();
    if ((kind & 8) != 0) files_.damaged = "lost";
    restart(false);
  }
  // A divide's, of this partition.
  std::string note() {
    store::DivideNote n;
    const uint8_t how = in_.byte();
    n.attempt = id_of<model::AttemptId>(how);
    n.parent = partition(in_.byte() % kPartitionsMax);
    n.assignment = id_of<model::AssignmentId>(p_);
    n.at = (how & 1) != 0 ? end() : LogPoint{{in_.byte()}, {in_.byte()}, in_.byte()};
    n.point = in_.text();
    n.low = {partition(in_.byte() % kPartitionsMax), {2}, id_of<model::AssignmentId>(how & 2)};
    n.high = {partition(in_.byte() % kPartitionsMax), {3}, id_of<model::AssignmentId>(how & 4)};
    if ((how & 8) != 0) n.log = store::DivideLog{epochs(), in_.byte(), in_.byte()};
    return store::encode_note(n);
  }
  std::vector<model::EpochStart> epochs() {
    std::vector<model::EpochStart> out;
    for (int n = in_.byte() % 4; n > 0; n--) out.push_back({{in_.byte()}, {in_.byte()}});
    return out;
  }

  // A part of a snapshot that another server gives, and in the end its place is taken.
  void snapshot() {
    const uint8_t how = in_.byte();
    model::QuorumSnapshotPart part;
    part.at = {{in_.byte()}, {in_.byte()}, in_.byte()};
    part.place.snapshot = in_.byte();
    part.place.after_key = in_.text();
    part.place.records_done = (how & 1) != 0;
    part.place.all = (how & 2) != 0;
    part.log_time_ms = in_.byte();
    part.epochs = epochs();
    part.records = payload(BlockKind::data, (how >> 2) & 3, {1}, {1});
    if ((how & 16) != 0) {
      model::SeriesWindow window;
      window.add({1 + uint64_t{in_.byte()}, {{1}, {in_.byte()}}, in_.byte()});
      part.series.push_back({in_.byte(), store::encode_row(window)});
    }
    if ((how & 32) != 0) part.series.push_back({in_.byte(), in_.text()});
    settle();
    const auto kept = part;
    bool filled = false;
    if (!engine_->refill(partition(p_), std::move(part), [&](const base::Status& s) { filled = s.has_value(); }))
      return;
    settle();
    if (!filled || (how & 64) == 0) return;
    bool installed = false;
    const auto before = end();
    (void)engine_->install(partition(p_), [&](const base::Status& s) { installed = s.has_value(); });
    settle();
    if (!installed) return;
    const auto at = end();
    CHECK(model::token_of(at) >= model::token_of(before));
    Copy copy;
    copy.begin = copy.durable = at;
    copy.before = engine_->quorum_log(partition(p_))->epochs;  // of its first part
    CHECK(!copy.before.empty() && copy.before.back().epoch == at.epoch && copy.before.back().first <= at.lsn);
    copies_[p_] = copy;
    installed_ = true;
  }

  // What was taken is what the store and who reads its journal give.
  void read() {
    const Lsn from{1 + uint64_t{in_.byte()}};
    const auto bytes = 1 + 16 * in_.byte();
    if (!copies_.contains(p_)) return;  // all that was here went to others
    if (sound_) settle();
    auto part = engine_->read_log(partition(p_), from, bytes);
    if (!part && part.error().code == base::Code::unavailable) {
      settle();
      part = engine_->read_log(partition(p_), from, bytes);
    }
    if (part) same(*part, from);
    auto reader = store::JournalReader::open(disk_);
    if (!reader || installed_ || !(*reader)->advance(engine_->status().head)) return;
    const auto there = (*reader)->read(partition(p_), from, bytes);
    if (!there) return;
    std::vector<model::Block> blocks;
    for (const auto& b : there->blocks) blocks.push_back({b.header, b.payload});
    CHECK(!sound_ || !there->gap);
    if (sound_) same(blocks, from);
  }
  void same(const std::vector<model::Block>& blocks, Lsn from) const {
    LogPoint last;
    for (const auto& b : blocks) {
      CHECK(wire::check_payload(b.header, b.payload) && b.header.last() >= from);
      const LogPoint before = before_of(b.header);
      CHECK(last.lsn.value == 0 || before == last);
      last = point_of(b.header);
      if (!sound_) continue;
      const auto& copy = copies_.at(p_);
      CHECK(b.header.last() <= copy.begin.lsn || copy.has(last));
    }
  }

  Steps& in_;
  store::MemDisk disk_;
  store::MemIndexFiles files_;
  store::MemIndexFactory factory_{files_};
  Clock clock_;
  store::EngineConfig config_;
  std::unique_ptr<store::LivePage> live_;
  std::unique_ptr<store::InlineExecutor> lanes_;
  std::unique_ptr<store::Engine> engine_;
  model::Incarnation incarnation_;
  std::map<uint8_t, Copy> copies_;
  uint8_t p_ = 1, next_ = 2;
  bool installed_ = false;  // who reads the journal alone does not know where a log begins anew
  bool sound_ = true;       // nothing was damaged
  bool moving_ = false;     // a cut or a divide is not known to be durable
  bool failed_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  base::set_log_level(base::Level::fatal);
  Steps steps(data, size);
  Machine(steps).run();
  return 0;
}
