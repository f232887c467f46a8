#include "lib/client/load.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lib/base/bytes.h"
#include "lib/io/loop.h"

namespace cantle::client {

using base::Code;

namespace {

// The record itself is at fault: it is counted and the load goes on.
bool fault_of_the_record(Code code) {
  return code == Code::invalid || code == Code::too_large || code == Code::malformed;
}

}  // namespace

double LoadFigures::seconds(base::Instant now) const {
  return std::chrono::duration<double>((ended.since_boot.count() ? ended : now) - begun).count();
}
double LoadFigures::records_per_second(base::Instant now) const {
  const double s = seconds(now);
  return s > 0 ? static_cast<double>(acknowledged) / s : 0;
}
double LoadFigures::bytes_per_second(base::Instant now) const {
  const double s = seconds(now);
  return s > 0 ? static_cast<double>(bytes) / s : 0;
}

Loader::Loader(Client& client, LoadOptions options, LoadHooks hooks)
    : client_(client),
      options_(std::move(options)),
      hooks_(std::move(hooks)),
      partition_of_([this](std::string_view key) { return partition_of(key); }),
      pacer_(options_.rate, client.loop().now()),
      gaps_(hooks_.gap),
      wake_(client.loop(), [this] { pump(); }) {}
Loader::~Loader() { *alive_ = false; }

uint64_t Loader::partition_of(std::string_view key) const {
  const auto* partition = map_ ? map_->find(key) : nullptr;
  return partition ? partition->region.value : 0;
}

void Loader::start() {
  figures_.begun = client_.loop().now();
  client_.with_map(options_.table, {}, [this, alive = alive_](base::Result<MapPtr> map) {
    if (!*alive) return;
    if (!map) return stop(map.error());
    map_ = *map;
    pacer_ = Pacer(options_.rate, client_.loop().now());
    figures_.begun = client_.loop().now();
    feed();
  });
}

void Loader::add(InputFeed::Portion&& portion) {
  asked_ = false;
  figures_.input_bytes = portion.bytes_read;
  read_any_ = read_any_ || !portion.entries.empty() || options_.keep_going;
  if (!reject(std::move(portion.rejected), !portion.last)) return;
  for (auto& e : portion.entries) queue_.add(std::move(e), partition_of_);
  if (portion.last) input_over_ = true;
  if (portion.error) return stop(*portion.error);
  pump();
}

// False: nothing could be read so far, and that is enough.
bool Loader::reject(std::vector<Rejected>&& rejected, bool more) {
  figures_.rejected += rejected.size();
  std::move(rejected.begin(), rejected.end(), std::back_inserter(held_back_));
  hopeless_ = !read_any_ && held_back_.size() >= kHopeless;
  if (hopeless_) {
    hooks_.rejected(held_back_.front());
    stop({Code::invalid, "none of the first " + std::to_string(held_back_.size()) + " entries can be read"});
    return false;
  }
  if (read_any_ || !more)
    for (const auto& r : std::exchange(held_back_, {})) hooks_.rejected(r);
  return true;
}

void Loader::stop(base::Error why) {
  if (!failed_) failed_ = std::move(why);
  finish_if_over();
}

void Loader::pump() {
  if (finished_) return;
  if (const auto map = client_.map_in_hand(options_.table); map && map != map_) {
    map_ = map;
    queue_.reroute(partition_of_);
  }
  while (!failed_ && queue_.ready() && queue_.out() < options_.window) {
    const uint64_t allowed = pacer_.allowed(client_.loop().now());
    if (allowed == 0) {
      wake_.start(std::max(pacer_.next() - client_.loop().now(), base::Duration(1)));
      break;
    }
    WriteQueue::Limits limits = options_.group;
    limits.records = std::min({limits.records, options_.window - queue_.out(), static_cast<size_t>(allowed)});
    auto group = queue_.next(limits);
    if (!group) break;
    pacer_.spend(group->writes.size());
    send(std::move(*group));
  }
  feed();
  finish_if_over();
}

void Loader::feed() {
  if (asked_ || input_over_ || failed_ || queue_.waiting() > 2 * options_.window) return;
  asked_ = true;
  hooks_.hungry();
}

void Loader::send(WriteQueue::Group&& group) {
  std::vector<model::BatchOp> ops;
  ops.reserve(group.writes.size());
  for (const auto& w : group.writes)
    ops.push_back({.op = w.deleted ? model::Op::del : model::Op::put, .key = w.key, .value = w.value});
  const auto now = client_.loop().refresh_now();
  gaps_.sent(now);
  ++figures_.requests;
  client_.batch(
      options_.table, std::move(ops), {.level = options_.level, .timeout = options_.timeout, .may_divide = true},
      [this, alive = alive_, now,
       group = std::make_shared<WriteQueue::Group>(std::move(group))](base::Result<model::WriteReply> result) {
        if (*alive) ended(std::move(*group), now, result);
      });
}

void Loader::ended(WriteQueue::Group&& group, base::Instant sent, const base::Result<model::WriteReply>& result) {
  if (!result) {
    refused(std::move(group), result.error());
  } else {
    const auto now = client_.loop().now();
    gaps_.acknowledged(now);
    figures_.latency.add(now - sent);
    figures_.acknowledged += group.writes.size();
    figures_.bytes += group.bytes;
    queue_.done(std::move(group), partition_of_);
  }
  if (queue_.out() == 0) gaps_.idle();
  pump();
}

void Loader::refused(WriteQueue::Group&& group, const base::Error& error) {
  if (!fault_of_the_record(error.code)) {
    const auto& first = group.writes.front();
    if (!failed_)
      failed_ = base::Error(error).wrap("line " + std::to_string(first.line) + ", key " + base::escape(first.key));
    queue_.done(std::move(group), partition_of_);
  } else if (group.writes.size() > 1) {
    queue_.apart(std::move(group));
  } else {
    ++figures_.rejected;
    hooks_.rejected({group.writes.front().line, to_string(error)});
    queue_.done(std::move(group), partition_of_);
  }
}

void Loader::finish_if_over() {
  if (finished_ || queue_.out() > 0) return;
  if (!failed_ && (!input_over_ || queue_.waiting() > 0)) return;
  finished_ = true;
  wake_.stop();
  figures_.ended = client_.loop().now();
  figures_.longest_gap = gaps_.longest();
  figures_.longest_gap_end = gaps_.longest_end();
  client_.loop().defer([done = hooks_.finished, failed = failed_] {
    if (failed)
      done(base::fail(*failed));
    else
      done(base::ok());
  });
}

}  // namespace cantle::client
