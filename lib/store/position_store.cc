#include "lib/store/position_store.h"

#include "lib/base/bytes.h"
#include "lib/base/testing.h"
#include "lib/store/lmdb_index.h"
#include "lib/store/position.h"
#include "lib/wire/codec.h"

namespace cantle::store {
namespace {

using base::Code;
using base::ok;

std::string key_of(const PositionKey& key) {
  std::string bytes(key.own.view());
  return bytes += key.target.view();
}

std::string encode(const Position& position) {
  const auto body = wire::encode(position);
  std::string out;
  base::put_u32_be(out, base::crc32c(body));
  return out += body;
}

base::Result<Position> decode(std::string_view bytes) {
  if (bytes.size() < 4 || base::get_u32_be(bytes.data()) != base::crc32c(bytes.substr(4)))
    return base::fail(Code::corrupt, "positions: wrong checksum");
  auto position = wire::decode<Position>(bytes.substr(4));
  if (!position) return base::fail(Code::corrupt, "positions: " + position.error().text);
  return position;
}

}  // namespace

struct PositionStore::Impl {
  std::unique_ptr<Index> owned;
  Index* index = nullptr;
  std::unique_ptr<Reader> reader;
};

base::Result<std::unique_ptr<PositionStore>> PositionStore::open(const std::string& data_dir, bool write) {
  TRY_ASSIGN(auto index, open_lmdb(data_dir + "/" + std::string(kPositionsDir), {.write = write}, {Db::positions}));
  auto store = std::make_unique<PositionStore>(*index);
  store->impl_->owned = std::move(index);
  return store;
}

PositionStore::PositionStore(Index& index) : impl_(std::make_unique<Impl>()) {
  impl_->index = &index;
  impl_->reader = index.reader();
}
PositionStore::~PositionStore() { impl_->reader.reset(); }

base::Result<std::optional<Position>> PositionStore::get(const PositionKey& key) {
  TRY(impl_->reader->renew());
  auto bytes = impl_->reader->get(Db::positions, key_of(key));
  if (!bytes) return base::fail(std::move(bytes).error());
  if (!*bytes) {
    impl_->reader->reset();
    return std::nullopt;
  }
  auto position = decode(**bytes);
  impl_->reader->reset();
  if (!position) return base::fail(std::move(position).error());
  return std::move(*position);
}

base::Status PositionStore::put(const PositionKey& key, const Position& position) { return put({{key, position}}); }

base::Status PositionStore::put(const std::vector<std::pair<PositionKey, Position>>& positions) {
  TRY_ASSIGN(auto txn, impl_->index->begin());
  for (const auto& [key, position] : positions) TRY(txn->put(Db::positions, key_of(key), encode(position)));
  CRASH_POINT("positions.before_commit");
  return txn->commit();
}

base::Status PositionStore::remove(const PositionKey& key) {
  TRY_ASSIGN(auto txn, impl_->index->begin());
  TRY(txn->del(Db::positions, key_of(key)));
  return txn->commit();
}

base::Result<std::map<PositionKey, Position>> PositionStore::all() {
  std::map<PositionKey, Position> out;
  TRY(impl_->reader->renew());
  const auto read = [&]() -> base::Status {
    TRY_ASSIGN(auto cursor, impl_->reader->cursor(Db::positions));
    TRY_ASSIGN(auto at, cursor->seek(""));
    while (at) {
      if (at->key.size() != 32) return base::fail(Code::corrupt, "positions: a key of the wrong length");
      TRY_ASSIGN(const auto own, model::AssignmentId::from_bytes(at->key.substr(0, 16)));
      TRY_ASSIGN(const auto target, model::AssignmentId::from_bytes(at->key.substr(16)));
      TRY_ASSIGN(out[(PositionKey{own, target})], decode(at->value));
      TRY_ASSIGN(at, cursor->next());
    }
    return ok();
  };
  auto s = read();
  impl_->reader->reset();
  if (!s) return base::fail(std::move(s).error());
  return out;
}

}  // namespace cantle::store
