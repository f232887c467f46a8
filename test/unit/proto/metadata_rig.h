// MetadataRig: files, TableConfigs and names for the tests of the metadata machines. Files have hashes that
// stand for SHA-256 ones: "hash of <txnid>".
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "lib/base/bytes.h"
#include "lib/proto/metadata_commit.h"
#include "lib/proto/metadata_member.h"
#include "lib/proto/metadata_replica.h"
#include "test/support/random_table.h"

namespace cantle::proto {

using namespace std::chrono_literals;

inline const model::ServerId A{"a"}, B{"b"}, C{"c"}, D{"d"};

inline base::Instant at(int64_t ms) { return {std::chrono::seconds(100) + std::chrono::milliseconds(ms)}; }

inline std::string hash_of(const model::TxnId& txnid) {
  std::string h = "hash of ";
  h += txnid.view();
  h.resize(32, '.');
  return h;
}

class MetadataRig : public testing::Test {
 protected:
  MetadataRig() : random_(5), table_(9) { base_ = std::make_shared<const model::Metadata>(table_.current()); }

  // The file that follows `before` with one more change.
  MapPtr next(const MapPtr& before, model::ChangeId change, model::TxnId txnid) {
    const std::vector<model::Operation> ops{model::ops::SetOption{"read_level", "one"}};
    auto map = model::apply(before.get(), ops, {txnid, change, hash_of(before->txnid)});
    CHECK(map.has_value());
    return std::make_shared<const model::Metadata>(std::move(*map));
  }
  MapPtr next(const MapPtr& before) {
    return next(before, model::ChangeId::draw(random_), model::TxnId::draw(random_));
  }

  static VersionedConfig config(const MapPtr& file, int32_t version, std::vector<model::ServerId> servers = {A, B, C}) {
    VersionedConfig c;
    c.version = version;
    c.config.metadata_servers = std::move(servers);
    model::set_current(c.config, *file, hash_of(file->txnid));
    return c;
  }
  static ConfigAnswer read(const VersionedConfig& c) { return ConfigAnswer(c); }
  static ConfigAnswer nothing() { return ConfigAnswer(std::nullopt); }
  static ConfigAnswer away() { return base::fail(base::Code::unavailable, "away"); }

  base::SeededRandom random_;
  test::RandomTable table_;
  MapPtr base_;
};

}  // namespace cantle::proto
