// Requests of clients, decoded by hand, and scan cursors.
//
// What holds whatever comes
//   * What the quick decoders take, the codec takes too, and they agree on what it says.
//   * Nothing over a limit is taken; views lie inside the input.
//   * A cursor that decodes encodes to the same bytes.
#include <cstdint>
#include <string_view>

#include "lib/base/check.h"
#include "lib/model/client_messages.h"
#include "lib/wire/client_request.h"
#include "lib/wire/codec.h"

namespace {

using namespace cantle;

bool inside(std::string_view part, std::string_view whole) {
  return part.empty() || (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

void check_write(const wire::WriteRequest& r, std::string_view bytes) {
  CHECK(!r.ops.empty() && r.ops.size() == r.keys.size() && r.ops.size() <= model::kBatchRecordsMax);
  CHECK(r.bytes <= model::kBatchBytesMax);
  for (const auto& op : r.ops) {
    CHECK(!op.key.empty() && op.key.size() <= model::kKeyMax && op.value.size() <= model::kValueMax);
    CHECK(inside(op.key, bytes) && inside(op.value, bytes));
    CHECK(op.op == model::Op::put || op.op == model::Op::del);
  }
  CHECK(r.level >= model::Level::one && r.level <= model::Level::all);
  const auto passed = wire::pass_on(bytes, {3});
  CHECK(!passed.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto get = wire::decode_get(bytes)) {
    CHECK(inside(get->key, bytes) && inside(get->table, bytes));
    if (const auto same = wire::decode<model::GetRequest>(bytes))
      CHECK(same->key == get->key && same->level == get->level);
  }
  if (const auto put = wire::decode_put(bytes)) {
    check_write(*put, bytes);
    if (const auto same = wire::decode<model::PutRequest>(bytes))
      CHECK(same->key == put->ops[0].key && same->value == put->ops[0].value);
  }
  if (const auto batch = wire::decode_batch(bytes)) check_write(*batch, bytes);
  if (const auto cursor = model::decode_cursor(bytes)) CHECK(model::encode_cursor(*cursor) == bytes);
  return 0;
}
