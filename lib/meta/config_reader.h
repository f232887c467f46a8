// ConfigReader: TableConfig of one table, read after a sync, and a watch on it as a hint (S33). What the watch leads to
// is read without a sync: that goes through the leader of the coordination service, from every metadata server, just
// when the next change wants to.
//
// Use
//   reader.read([](proto::ConfigAnswer a) { … });     // a read that begins after this call
//   reader.on_read([](const proto::ConfigAnswer& a, Asked asked) { … });   // every read, and when it began
//
// Any number of callers share one read, but none gets one that began before it asked.
// Threads: the loop's. Ownership: the host outlives it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/meta/host.h"
#include "lib/proto/metadata_types.h"

namespace cantle::meta {

class ConfigReader {
 public:
  using Done = std::function<void(const proto::ConfigAnswer&)>;
  // When the sync before the read was sent: it was so then or later. None: it was so at some time.
  using Asked = std::optional<base::Instant>;

  ConfigReader(Host& host, std::string path);
  ~ConfigReader();
  ConfigReader(const ConfigReader&) = delete;
  ConfigReader& operator=(const ConfigReader&) = delete;

  void read(Done done);
  void on_read(std::function<void(const proto::ConfigAnswer&, Asked)> fn) { on_read_ = std::move(fn); }
  void session_lost() { armed_ = false; }  // its watches are gone

 private:
  void begin();
  void get();
  void got(base::Result<coord::Node> node);
  void finish(const proto::ConfigAnswer& answer);

  Host& host_;
  std::string path_;
  std::function<void(const proto::ConfigAnswer&, Asked)> on_read_;
  Asked asked_;  // of the read that is under way
  std::vector<Done> running_, next_;
  bool busy_ = false, armed_ = false, hinted_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cantle::meta
