#include "lib/wire/codec.h"
#include "lib/wire/metadata_codec.h"

namespace cantle::wire {
namespace {

// Reads the fields of the operation with this name.
template <size_t I = 0>
base::Result<model::Operation> read_named(std::string_view name, std::string_view fields) {
  if constexpr (I < std::variant_size_v<model::Operation>) {
    using Op = std::variant_alternative_t<I, model::Operation>;
    if (model::operation_name(model::Operation(std::in_place_index<I>)) != name) return read_named<I + 1>(name, fields);
    auto op = decode<Op>(fields);
    if (!op) return base::fail(std::move(op).error().wrap(name));
    return model::Operation(std::move(*op));
  } else {
    return base::fail(base::Code::invalid, "there is no operation " + base::escape(name.substr(0, 64)));
  }
}

}  // namespace

std::string encode_operations(std::span<const model::Operation> operations) {
  std::string out;
  Writer w(out);
  w.array(operations.size());
  for (const auto& op : operations) {
    w.array(2);
    w.str(model::operation_name(op));
    std::visit([&](const auto& x) { put(w, x); }, op);
  }
  return out;
}

base::Result<std::vector<model::Operation>> decode_operations(std::string_view bytes) {
  Reader in(bytes);
  uint32_t count = 0;
  if (!in.array(&count)) return base::fail(base::Code::malformed, "ops: not an array");
  if (count == 0 || count > model::kOperationsMax)
    return base::fail(base::Code::invalid,
                      "ops: a transaction has 1 to " + std::to_string(model::kOperationsMax) + " operations");
  std::vector<model::Operation> out;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t pair = 0;
    std::string_view name, fields;
    if (!in.array(&pair) || pair != 2 || !in.text(&name) || !in.skip(&fields))
      return base::fail(base::Code::malformed, "ops[" + std::to_string(i) + "]: not [name, fields]");
    auto op = read_named(name, fields);
    if (!op) return base::fail(std::move(op).error().wrap("ops[" + std::to_string(i) + "]"));
    out.push_back(std::move(*op));
  }
  if (!in.done()) return base::fail(base::Code::malformed, "ops: bytes behind the array");
  return out;
}

}  // namespace cantle::wire
