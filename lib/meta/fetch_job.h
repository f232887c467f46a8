// FetchJob: brings one METADATA file here from other metadata servers, node by node, each believed under its own
// hash only.
//
// One server after another is asked; what one delivered counts for the next. It gives up when all of them have
// failed. Threads: the loop's. Ownership: the host outlives it; destroyed, it calls nobody.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/meta/host.h"

namespace cantle::meta {

struct FetchedFile {
  wire::MetadataFile file;
  std::vector<wire::Node> nodes;  // those that were fetched
};

class FetchJob {
 public:
  using Done = std::function<void(base::Result<FetchedFile>)>;
  FetchJob(Host& host, std::string table, model::TableUuid uuid, wire::NodeHash root, std::vector<model::ServerId> from,
           const wire::MetadataFile* base, Done done);
  ~FetchJob();
  FetchJob(const FetchJob&) = delete;
  FetchJob& operator=(const FetchJob&) = delete;
  void start() { step(); }

 private:
  const std::string* lookup(const wire::NodeHash& hash);
  void step();
  void ask(std::vector<wire::NodeHash> missing);
  void answered(const std::vector<wire::NodeHash>& asked, base::Result<model::MdFetchReply> reply);
  void decode();
  void end(base::Result<FetchedFile> result);

  Host& host_;
  std::string table_;
  model::TableUuid uuid_;
  wire::NodeHash root_;
  std::vector<model::ServerId> from_;
  size_t at_ = 0;
  std::optional<wire::MetadataFile> base_;
  std::map<wire::NodeHash, std::shared_ptr<const std::string>> here_, fetched_;
  base::Error last_;
  Done done_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cantle::meta
