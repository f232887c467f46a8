#include "lib/wire/pipe_block.h"

#include "lib/base/check.h"
#include "lib/wire/block.h"
#include "lib/wire/codec.h"

namespace cantle::wire {

using base::Code;

namespace {

constexpr size_t kAround = 512;  // what a message has besides its block and its route, encoded
constexpr size_t kHopSize = 64;

bool is_block(const model::PipeBlock& message, const auto& field) {
  return static_cast<const void*>(&field) == &message.block;
}

// model::PipeBlock, read without copying its block.
struct Fields {
  model::PipeBlock message;
  std::string_view block;
  template <class Visitor>
  void each_field(Visitor&& visitor) {
    message.each_field([&](const char* name, auto& field) {
      if (is_block(message, field))
        visitor(name, block);
      else
        visitor(name, field);
    });
  }
};

}  // namespace

std::string encode_pipe_block(const model::PipeBlock& message, std::string_view header, std::string_view payload) {
  CHECK(message.block.empty());
  std::string out;
  out.reserve(kAround + message.envelope.table.size() + message.route.size() * kHopSize + header.size() +
              payload.size());
  Writer w(out);
  size_t count = 0;
  message.each_field([&](const char*, const auto&) { ++count; });
  w.map(count);
  message.each_field([&](const char* name, const auto& field) {
    w.str(name);
    if (!is_block(message, field)) return put(w, field);
    w.bin_head(header.size() + payload.size());
    w.raw(header);
    w.raw(payload);
  });
  return out;
}

base::Result<PipeBlockView> decode_pipe_block(std::string_view params) {
  TRY_ASSIGN(auto fields, decode<Fields>(params));
  auto header = decode_header(fields.block);
  if (!header) return base::fail(std::move(header).error().wrap("field block"));
  if (!model::is_log_block(header->kind)) return base::fail(Code::malformed, "field block: no block of a log");
  const auto payload = fields.block.substr(kBlockHeaderSize);
  if (payload.size() != header->length)
    return base::fail(Code::malformed, "field block: " + std::to_string(payload.size()) + " bytes behind a header of " +
                                           std::to_string(header->length));
  return PipeBlockView{std::move(fields.message), *header, fields.block, payload};
}

}  // namespace cantle::wire
