// The writes of Client: one operation is a put or a delete, several are a batch, and a batch that may be divided
// goes in parts where a split has drawn a border through it.

#include <map>

#include "lib/base/bytes.h"
#include "lib/client/write_flow.h"

namespace cantle::client {

using base::Code;

namespace {

class BatchFlow final : public WriteFlow {
 public:
  BatchFlow(Client& client, const std::string& table, std::vector<model::BatchOp> ops, const WriteOptions& options,
            Done<model::WriteReply> done)
      : WriteFlow(client, table, options.timeout, std::move(done)), options_(options), ops_(std::move(ops)) {}

 private:
  // The parts of a divided batch: the last one to end answers for all.
  struct Join {
    size_t left = 0;
    base::Result<model::WriteReply> result = model::WriteReply{};
    Done<model::WriteReply> done;
    void ended(base::Result<model::WriteReply> part) {
      if (!part || result) result = std::move(part);
      if (--left == 0) done(std::move(result));
    }
  };

  const model::Partition* locate(const model::Metadata& map) override {
    const auto* partition = map.find(ops_.front().key);
    if (!partition) {
      give_up({Code::corrupt, "the map has no partition for the key"});
      return nullptr;
    }
    for (const auto& op : ops_) {
      if (partition->interval.contains(op.key)) continue;
      if (options_.may_divide)
        divide(map);
      else
        give_up({Code::invalid, "a batch lies in one partition: keys " + base::escape(ops_.front().key) + " and " +
                                    base::escape(op.key) + " do not"});
      return nullptr;
    }
    return partition;
  }

  // Each part goes on with the attempts so far: its deadline, what is known of its outcome, its version. Not with the
  // number: after a merge, two parts with one number would be one write.
  void divide(const model::Metadata& map) {
    if (!may_be_new_writes())
      return give_up({Code::invalid, "a batch lies in one partition, and this one's was split meanwhile"});
    std::map<const model::Partition*, std::vector<model::BatchOp>> parts;
    for (auto& op : ops_) parts[map.find(op.key)].push_back(std::move(op));
    auto join = std::make_shared<Join>();
    join->left = parts.size();
    join->done = hand_over();
    for (auto& [partition, ops] : parts) {
      auto part = std::make_shared<BatchFlow>(
          client_, table_, std::move(ops), options_,
          [join](base::Result<model::WriteReply> result) { join->ended(std::move(result)); });
      part->attempts_ = attempts_;
      part->begin();
    }
  }

  uint64_t spread() const override { return base::hash128(ops_.front().key).low; }
  std::string_view method() const override {
    if (ops_.size() > 1) return "batch";
    return ops_.front().op == model::Op::put ? "put" : "delete";
  }

  template <class Request>
  std::string fill(Request request, model::TxnSeq txnseq, uint32_t deadline_ms) {
    request.level = options_.level;
    return complete(std::move(request), txnseq, deadline_ms);
  }
  std::string encode(model::TxnSeq txnseq, uint32_t deadline_ms) override {
    auto& first = ops_.front();
    if (ops_.size() > 1) {
      model::BatchRequest request;
      request.ops = ops_;
      return fill(std::move(request), txnseq, deadline_ms);
    }
    if (first.op == model::Op::put) {
      model::PutRequest request;
      request.key = first.key;
      request.value = first.value;
      return fill(std::move(request), txnseq, deadline_ms);
    }
    model::DeleteRequest request;
    request.key = first.key;
    return fill(std::move(request), txnseq, deadline_ms);
  }

  const WriteOptions options_;
  std::vector<model::BatchOp> ops_;
};

}  // namespace

void Client::batch(const std::string& table, std::vector<model::BatchOp> ops, const WriteOptions& options,
                   Done<model::WriteReply> done) {
  if (ops.empty())
    return loop_.defer([done = std::move(done)] { done(base::fail(Code::invalid, "the batch is empty")); });
  std::make_shared<BatchFlow>(*this, table, std::move(ops), options, std::move(done))->begin();
}

void Client::put(const std::string& table, std::string key, std::string value, const WriteOptions& options,
                 Done<model::WriteReply> done) {
  batch(table, {{.op = model::Op::put, .key = std::move(key), .value = std::move(value)}}, options, std::move(done));
}

void Client::remove(const std::string& table, std::string key, const WriteOptions& options,
                    Done<model::WriteReply> done) {
  batch(table, {{.op = model::Op::del, .key = std::move(key), .value = {}}}, options, std::move(done));
}

}  // namespace cantle::client
