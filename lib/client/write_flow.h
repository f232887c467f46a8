// WriteFlow: what all writes have: an answer, and in a quorum table a number. Internal to lib/client.
//
// Invariants
//   * The number is drawn when an attempt first goes to a quorum table, and then stays whatever is answered:
//   not_leader,
//     unavailable, another map.
//   * It is waited for until the write ends; then the next one of the client can have its place in the window.
//   * age_ms counts from the first attempt that may have happened: what was refused before was not written, and needs
//     no server that remembers it.
#pragma once

#include <algorithm>
#include <utility>

#include "lib/client/flow.h"
#include "lib/io/loop.h"
#include "lib/wire/codec.h"

namespace cantle::client {

class WriteFlow : public Flow {
 protected:
  WriteFlow(Client& client, const std::string& table, base::Duration timeout, Done<model::WriteReply> done)
      : Flow(client, table, Purpose::write, timeout), done_(std::move(done)) {}

  // With what every write says.
  template <class Request>
  std::string complete(Request request, model::TxnSeq txnseq, uint32_t deadline_ms) {
    request.table = table_;
    request.txnseq = txnseq;
    request.hop = false;
    request.deadline_ms = deadline_ms;
    if constexpr (requires { request.after; })
      if (!of_quorum()) {  // a push table tells its writes by their versions
        request.version = attempts_.version();
        request.after = client_.newest_;
      }
    number();
    if (number_) {
      request.client = number_->client;
      request.series = number_->series;
      request.series_low = client_.lanes_.low(*number_);
      const auto age_ms = static_cast<uint64_t>(base::to_ms(client_.loop_.now() - sent_));
      request.age_ms = std::max<uint64_t>(age_ms, attempts_.maybe_happened() ? 1 : 0);  // it says that, too
    }
    return wire::encode(request);
  }
  // To send what it says under other numbers may write it twice.
  bool may_be_new_writes() const {
    return !number_ || !attempts_.maybe_happened() || client_.options_.retry.repeat_unknown;
  }
  // Others go on with it: this flow is over.
  Done<model::WriteReply> hand_over() {
    end_number();
    return std::move(done_);
  }

 private:
  void number() {
    if (!number_ && of_quorum()) {
      number_ = client_.lanes_.draw();
      sent_ = client_.loop_.now();
      attempts_.repeatable();
    }
    if (!attempts_.maybe_happened()) sent_ = client_.loop_.now();
  }
  void end_number() {
    if (const auto number = std::exchange(number_, std::nullopt)) client_.lanes_.ended(*number);
  }

  base::Status succeeded(std::string_view result) override {
    auto reply = wire::decode<model::WriteReply>(result);
    // It was acknowledged, whatever else the answer says.
    if (!reply) return base::fail(base::Code::outcome_unknown, "unreadable acknowledgement: " + reply.error().text);
    client_.saw(reply->version);
    saw_lsn(reply->lsn.value);
    end_number();
    done_(std::move(*reply));
    return base::ok();
  }
  void failed(const base::Error& error) override {
    if (attempts_.version()) client_.saw(*attempts_.version());
    end_number();
    done_(base::fail(error));
  }

  std::optional<Lanes::Number> number_;
  base::Instant sent_;  // the first attempt that may have happened, or else the last one
  Done<model::WriteReply> done_;
};

}  // namespace cantle::client
