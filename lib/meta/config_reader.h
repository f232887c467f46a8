// ConfigReader: TableConfig of one table, read after a sync, and a watch on it as a hint (S33).
//
// Use
//   reader.read([](proto::ConfigAnswer a) { … });     // a read that begins after this call
//   reader.on_read([](const proto::ConfigAnswer& a, base::Instant asked) { … });   // every read, and when it began
//
// Any number of callers share one read, but none gets one that began before it asked.
// Threads: the loop's. Ownership: the host outlives it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/meta/host.h"
#include "lib/proto/metadata_types.h"

namespace cantle::meta {

class ConfigReader {
 public:
  using Done = std::function<void(const proto::ConfigAnswer&)>;

  ConfigReader(Host& host, std::string path);
  ~ConfigReader();
  ConfigReader(const ConfigReader&) = delete;
  ConfigReader& operator=(const ConfigReader&) = delete;

  void read(Done done);
  void on_read(std::function<void(const proto::ConfigAnswer&, base::Instant)> fn) { on_read_ = std::move(fn); }
  void session_lost() { armed_ = false; }  // its watches are gone

 private:
  void begin();
  void got(base::Result<coord::Node> node);
  void finish(const proto::ConfigAnswer& answer);

  Host& host_;
  std::string path_;
  std::function<void(const proto::ConfigAnswer&, base::Instant)> on_read_;
  base::Instant asked_;  // when the read that is under way was sent
  std::vector<Done> running_, next_;
  bool busy_ = false, armed_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cantle::meta
