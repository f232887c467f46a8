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
#include "lib/model/series.h"
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
  CHECK((r.client == 0) == (r.series == 0));
  CHECK(r.series_low == 0 || (r.series_low <= r.series && r.series - r.series_low < model::kSeriesWindow));
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
  if (const auto cas = wire::decode_cas(bytes)) {
    check_write(*cas, bytes);
    const auto& e = cas->expect;
    CHECK((e.version ? 1 : 0) + (e.value ? 1 : 0) + (e.absent ? 1 : 0) == 1);
    CHECK(!e.value || (inside(*e.value, bytes) && e.value->size() <= model::kValueMax));
    if (const auto same = wire::decode<model::CasRequest>(bytes))
      CHECK(same->key == cas->ops[0].key && same->value == cas->ops[0].value && same->op == cas->ops[0].op &&
            same->expect.version == e.version && same->expect.value == e.value && same->expect.absent == e.absent &&
            same->client.value_or(0) == cas->client && same->series.value_or(0) == cas->series);
  }
  if (const auto append = wire::decode_append(bytes)) {
    check_write(*append, bytes);
    if (const auto same = wire::decode<model::AppendRequest>(bytes))
      CHECK(same->key == append->ops[0].key && same->value == append->ops[0].value);
  }
  if (const auto incr = wire::decode_incr(bytes)) {
    check_write(*incr, bytes);
    CHECK(incr->ops[0].value.empty());
    if (const auto same = wire::decode<model::IncrRequest>(bytes))
      CHECK(same->key == incr->ops[0].key && same->by == incr->by);
  }
  if (const auto cursor = model::decode_cursor(bytes)) CHECK(model::encode_cursor(*cursor) == bytes);
  return 0;
}
