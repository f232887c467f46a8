// Messages between servers and of clients and tools that the codec alone reads: of push tables, metadata servers,
// clients, partd and its replpush, the first words of a connection, a file's positions. Those of quorum tables'
// replicas have fuzz_pipe.cc; requests that are read by hand have fuzz_client_request.cc.
//
// What holds whatever comes: it is refused, or what it says is encoded to something that says the same. The first byte
// says which message the rest is; seeds name messages by it, so that new ones come last.
#include <cstdint>
#include <string_view>

#include "lib/base/check.h"
#include "lib/model/client_messages.h"
#include "lib/model/local.h"
#include "lib/model/md_messages.h"
#include "lib/model/messages.h"
#include "lib/model/recovery.h"
#include "lib/rpc/hello.h"
#include "lib/store/position_store.h"
#include "lib/wire/codec.h"

namespace {

using namespace cantle;

template <class T>
void decode_twice(std::string_view bytes) {
  const auto once = wire::decode<T>(bytes);
  if (!once) return;
  const auto encoded = wire::encode(*once);
  const auto twice = wire::decode<T>(encoded);
  CHECK(twice);
  CHECK(wire::encode(*twice) == encoded);
}

template <class... Messages>
void decode_one(uint8_t which, std::string_view bytes) {
  using Decode = void (*)(std::string_view);
  constexpr Decode kDecoders[] = {&decode_twice<Messages>...};
  if (which < std::size(kDecoders)) kDecoders[which](bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cantle::model;
  if (size == 0) return 0;
  decode_one<
      // push tables
      PushWrite, PushWriteReply, Beacon, PushRead, PushReadReply, PushScan, PushScanReply, BulkBegin, BulkBeginReply,
      BulkBlock, BulkBlockReply, Digest, DigestReply, BulkEnd, Epochs, EpochsReply, MapChanged,
      // metadata servers
      MdChange, MdChangeReply, MdStore, MdStoreReply, MdAbort, MdOutcome, MdOutcomeReply, MdFind, MdFindReply, MdGet,
      MdGetReply, MdFetch, MdFetchReply, MdDiscover, MdDiscoverReply, MdJoin, MdLeave, MdMembersReply, MdStatusReply,
      // clients and tools
      GetReply, DeleteRequest, BatchRequest, WriteReply, ScanRequest, ScanReply, RouteRequest, RouteReply,
      StatusRequest, StatusReply, HashRequest, HashReply, SampleRequest, SampleReply, DropRequest, DropReply,
      DrainRequest, DrainReply, QuorumReportRequest, QuorumReportReply,
      // partd and replpush
      MoverViewRequest, MoverView, PushListRequest, PushList, PushAsk, PushAsked,
      // connections, files
      rpc::Hello, rpc::HelloReply, store::Position>(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
