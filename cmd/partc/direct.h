// Direct: records read from a data directory of this host, without a server: as of the last apply of its partd.
#pragma once

#include <memory>
#include <string>

#include "cmd/partc/tool.h"
#include "lib/model/client_messages.h"

namespace cantle::store {
class DirectReader;
}

namespace cantle::partc {

class Direct {
 public:
  // Which table is meant is asked of the cluster once.
  static base::Result<std::unique_ptr<Direct>> open(Tool& tool, const std::string& table, const std::string& data_dir);
  ~Direct();

  // not_found: no such record; unavailable: this directory does not hold the key's partition.
  base::Result<model::GetReply> get(const std::string& key);
  // Views end with the next call; null: not there. For measuring.
  base::Result<bool> peek(const std::string& key);
  base::Status refresh();
  // One page, as Client::scan gives it.
  base::Result<model::ScanReply> scan(const model::ScanRequest& request);

 private:
  Direct();
  std::unique_ptr<store::DirectReader> reader_;
  model::TableUuid table_;
};

}  // namespace cantle::partc
