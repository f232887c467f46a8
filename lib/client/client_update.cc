// cas, append and incr of Client: writes that depend on what is there. Quorum tables only.

#include "lib/base/bytes.h"
#include "lib/client/write_flow.h"

namespace cantle::client {

using base::Code;

namespace {

template <class Request>
class UpdateFlow final : public WriteFlow {
 public:
  UpdateFlow(Client& client, const std::string& table, std::string_view method, Request request, base::Duration timeout,
             Done<model::WriteReply> done)
      : WriteFlow(client, table, timeout, std::move(done)), method_(method), request_(std::move(request)) {}

 private:
  const model::Partition* locate(const model::Metadata& map) override {
    if (map.replication != model::Replication::quorum) {
      give_up({Code::invalid, "cas, append and incr are for quorum tables; " + table_ + " is a push table"});
      return nullptr;
    }
    const auto* partition = map.find(request_.key);
    if (!partition) give_up({Code::corrupt, "the map has no partition for the key"});
    return partition;
  }
  uint64_t spread() const override { return base::hash128(request_.key).low; }
  std::string_view method() const override { return method_; }
  std::string encode(model::TxnSeq txnseq, uint32_t deadline_ms) override {
    return complete(request_, txnseq, deadline_ms);
  }

  const std::string_view method_;  // a literal
  const Request request_;
};

}  // namespace

void Client::cas(const std::string& table, std::string key, model::Expect expect, std::optional<std::string> value,
                 const UpdateOptions& options, Done<model::WriteReply> done) {
  model::CasRequest request;
  request.key = std::move(key);
  request.expect = std::move(expect);
  request.op = value ? model::Op::put : model::Op::del;
  request.value = std::move(value).value_or("");
  std::make_shared<UpdateFlow<model::CasRequest>>(*this, table, "cas", std::move(request), options.timeout,
                                                  std::move(done))
      ->begin();
}

void Client::append(const std::string& table, std::string key, std::string bytes, const UpdateOptions& options,
                    Done<model::WriteReply> done) {
  model::AppendRequest request;
  request.key = std::move(key);
  request.value = std::move(bytes);
  std::make_shared<UpdateFlow<model::AppendRequest>>(*this, table, "append", std::move(request), options.timeout,
                                                     std::move(done))
      ->begin();
}

void Client::incr(const std::string& table, std::string key, int64_t by, const UpdateOptions& options,
                  Done<model::WriteReply> done) {
  model::IncrRequest request;
  request.key = std::move(key);
  request.by = by;
  std::make_shared<UpdateFlow<model::IncrRequest>>(*this, table, "incr", std::move(request), options.timeout,
                                                   std::move(done))
      ->begin();
}

}  // namespace cantle::client
