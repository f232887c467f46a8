// Loader: writes the records of an input into a table, as fast as it may, and measures.
//
// Use
//   Loader loader(client, options, {.rejected = …, .finished = …});
//   loader.start();
//   … loader.add(std::move(portion)) whenever loader.hungry() … with portion.last the input ends
//
// Invariants
//   * The records of one key are written in the order of the input: the last one wins (lib/client/write_queue.h).
//   * Every record ends up acknowledged, rejected (with its line and why), or as the reason why the load failed.
//   * An input that begins with kHopeless entries, none of which can be read, is of another format: the load fails,
//     and only the first of them is named.
//   * At most `window` records are under way. A batch is never larger than that.
// Threads: the loop's.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lib/client/client.h"
#include "lib/client/input_feed.h"
#include "lib/client/stats.h"
#include "lib/client/write_queue.h"

namespace cantle::client {

constexpr uint64_t kHopeless = 100;

struct LoadOptions {
  std::string table;
  model::Level level = model::Level::majority;
  base::Duration timeout = std::chrono::seconds(60);  // of one write, all its attempts together
  size_t window = 2048;                               // records under way
  WriteQueue::Limits group;                           // one request
  double rate = 0;                                    // records a second; 0: no limit
  bool keep_going = false;                            // whatever the input begins with
};

struct LoadFigures {
  uint64_t acknowledged = 0, bytes = 0;  // records, and bytes of their keys and values
  uint64_t rejected = 0;
  uint64_t requests = 0;
  uint64_t input_bytes = 0;
  base::Instant begun, ended;
  base::Duration longest_gap{0};
  base::Instant longest_gap_end;
  Histogram latency;  // of a request

  double seconds(base::Instant now) const;
  double records_per_second(base::Instant now) const;
  double bytes_per_second(base::Instant now) const;
};

struct LoadHooks {
  std::function<void(const Rejected&)> rejected;
  std::function<void(base::Instant end, base::Duration gap)> gap;  // each gap as it ends; may be null
  std::function<void(base::Status)> finished;                      // once
  std::function<void()> hungry;                                    // wants another portion
};

class Loader {
 public:
  Loader(Client& client, LoadOptions options, LoadHooks hooks);
  ~Loader();

  void start();
  void add(InputFeed::Portion&& portion);
  bool hopeless() const { return hopeless_; }
  void stop(base::Error why);  // sends nothing more; finished() when what is under way has ended

  const LoadFigures& figures() const { return figures_; }
  size_t under_way() const { return queue_.out(); }

 private:
  void pump();
  void send(WriteQueue::Group&& group);
  void ended(WriteQueue::Group&& group, base::Instant sent, const base::Result<model::WriteReply>& result);
  void refused(WriteQueue::Group&& group, const base::Error& error);
  void feed();
  bool reject(std::vector<Rejected>&& rejected, bool more);
  void finish_if_over();
  uint64_t partition_of(std::string_view key) const;

  Client& client_;
  const LoadOptions options_;
  LoadHooks hooks_;
  WriteQueue queue_;
  WriteQueue::PartitionOf partition_of_;
  MapPtr map_;
  Pacer pacer_;
  GapMeter gaps_;
  LoadFigures figures_;
  io::Timer wake_;
  bool asked_ = false, input_over_ = false, finished_ = false;
  bool hopeless_ = false, read_any_ = false;  // an entry that could be read
  std::vector<Rejected> held_back_;           // until one could, or there is no hope
  std::optional<base::Error> failed_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cantle::client
