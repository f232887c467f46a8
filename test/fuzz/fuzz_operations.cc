// A transaction's operations, from bytes to the next METADATA file.
//
// What holds whatever comes: it is refused, or there is one file that it makes, valid, one txnseq further. The input is
// a base file as a whole map (its length in four bytes; 0: none), then operations.
#include <cstdint>
#include <cstring>
#include <string_view>

#include "lib/base/check.h"
#include "lib/model/operation.h"
#include "lib/model/validate.h"
#include "lib/wire/metadata_codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cantle;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.size() < 4) return 0;
  uint32_t base_size = 0;
  std::memcpy(&base_size, bytes.data(), 4);
  bytes.remove_prefix(4);
  const auto base = wire::decode_whole_map(bytes.substr(0, base_size));
  if (base_size != 0 && (!base || base_size > bytes.size())) return 0;
  bytes.remove_prefix(base_size);

  const auto operations = wire::decode_operations(bytes);
  if (!operations) return 0;
  CHECK(operations->size() <= model::kOperationsMax);
  CHECK(wire::encode_operations(*operations) == wire::encode_operations(*wire::decode_operations(bytes)));
  for (const auto& operation : *operations) CHECK(!model::to_string(operation).empty());

  const model::Metadata* before = base_size == 0 ? nullptr : base->map.get();
  model::ApplyContext context;
  context.txnid.bytes = {1, 2, 3};
  context.change.bytes = {4, 5, 6};
  if (before != nullptr) context.base_hash = base->hash();
  const auto after = model::apply(before, *operations, context);
  if (!after) return 0;
  CHECK(model::validate(*after));
  CHECK(after->txnseq.value == (before == nullptr ? 1 : before->txnseq.value + 1));
  const auto whole = wire::encode_whole_map(*after);
  CHECK(wire::decode_whole_map(whole));
  (void)model::servers_of_change(before, *after);
  return 0;
}
