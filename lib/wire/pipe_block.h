// pipe.block as it goes from replica to replica: encoded around bytes that stand elsewhere, decoded without copying
// them.
//
//   auto params = encode_pipe_block(message, header, payload);    // the leader: header and payload lie apart
//   TRY_ASSIGN(auto in, decode_pipe_block(params));               // a follower: in.payload lies in `params`
//   in.message.envelope.to_assignment = next.assignment;          // and passes it on
//   in.message.route = rest;
//   auto on = encode_pipe_block(in.message, in.block);
//
// Invariants
//   * The bytes of a block are copied once by encode_pipe_block and never by decode_pipe_block.
//   * What encode_pipe_block makes is what the codec makes of the same message with its block filled in.
//   * What decodes has one header of a log block with a right checksum, and behind it as many bytes as the header says.
//   Their own
//     checksum is not looked at: who takes them does (Engine::take, check_payload).
//
// Threads: any; no state.
#pragma once

#include <string>
#include <string_view>

#include "lib/base/result.h"
#include "lib/model/block.h"
#include "lib/model/pipe.h"

namespace cantle::wire {

struct PipeBlockView {
  model::PipeBlock message;  // its `block` is left empty
  model::BlockHeader header;
  std::string_view block;    // header and payload; these are views into the params
  std::string_view payload;  // the end of it
};

// The message with `header` and `payload` one behind the other as its block. `message.block` is empty (CHECKed).
std::string encode_pipe_block(const model::PipeBlock& message, std::string_view header, std::string_view payload = {});
// malformed: as the codec says it, and a block that is cut short, has something behind it, or whose header is not one.
base::Result<PipeBlockView> decode_pipe_block(std::string_view params);

}  // namespace cantle::wire
