// One PushServer, and a shell for it that stores at once what it is asked to store; sends wait until the test answers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "lib/proto/push_server.h"
#include "test/unit/proto/driver_world.h"

namespace cantle::proto::test {

namespace push = cantle::proto::push;
using model::Level;

template <class E>
bool has(const push::Effects& effects) {
  return std::any_of(effects.begin(), effects.end(), [](const auto& e) { return std::holds_alternative<E>(e); });
}

class PushRig {
 public:
  explicit PushRig(DriverWorld& world, std::string name = "p1", push::Self self = {})
      : w(world), server(self_of(std::move(name), std::move(self))) {
    feed(push::LiveRead{live()});
  }

  // What a step asked for, all of it, since the last take().
  template <class E>
  std::vector<E> take() {
    std::vector<E> found;
    for (auto it = log.begin(); it != log.end();) {
      if (auto* e = std::get_if<E>(&*it)) {
        found.push_back(std::move(*e));
        it = log.erase(it);
      } else {
        ++it;
      }
    }
    return found;
  }
  template <class E>
  size_t count() const {
    return static_cast<size_t>(
        std::count_if(log.begin(), log.end(), [](const auto& e) { return std::holds_alternative<E>(e); }));
  }

  void feed(const push::Input& input) { perform(server.step(now, input)); }
  void install() { feed(push::MapRead{w.map->name, w.map}); }
  void install(const model::Operation& op) {
    w.must(op);
    install();
  }
  void pass(base::Duration d) {
    now.at = now.at + d;
    now.wall += static_cast<uint64_t>(base::to_ms(d));
    feed(push::Tick{});
  }

  // A write; its request number.
  uint64_t put(const std::string& key, Level level = Level::majority, base::Duration deadline = std::chrono::seconds(2),
               bool flush = true) {
    return write({key}, level, deadline, flush);
  }
  uint64_t write(const std::vector<std::string>& keys, Level level, base::Duration deadline = std::chrono::seconds(2),
                 bool flush = true, std::optional<model::Version> version = {}, model::TxnSeq txnseq = {},
                 bool hop = false, std::optional<model::Version> after = {}) {
    std::vector<std::string_view> views(keys.begin(), keys.end());
    push::WriteAsked in;
    in.request = ++last_request;
    in.table = "t";
    in.keys = views;
    in.bytes = 100 * keys.size();
    in.txnseq = txnseq;
    in.level = level;
    in.deadline = now.at + deadline;
    in.version = version;
    in.after = after;
    in.hop = hop;
    feed(in);
    if (flush) feed(push::Flush{});
    return in.request;
  }
  // The answer to a request: "ok", the name of the error code, or "" while there is none.
  std::string answer(uint64_t request) const {
    for (const auto& e : log)
      if (const auto* r = std::get_if<push::Reply>(&e); r != nullptr && r->request == request)
        return r->result ? "ok" : std::string(base::code_name(r->result.error().code));
    return "";
  }
  base::Error error(uint64_t request) const {
    for (const auto& e : log)
      if (const auto* r = std::get_if<push::Reply>(&e); r != nullptr && r->request == request && !r->result)
        return r->result.error();
    return {};
  }
  model::WriteReply reply(uint64_t request) const {
    for (const auto& e : log)
      if (const auto* r = std::get_if<push::Reply>(&e); r != nullptr && r->request == request && r->result)
        return *r->result;
    return {};
  }
  // Answers the sends to a server that are under way: confirmed, or with this error.
  void confirm(const std::string& server_name) { answer_sends(server_name, model::PushWriteReply{{1}, now.wall}); }
  void refuse(const std::string& server_name, base::Error error) {
    answer_sends(server_name, tl::unexpected<base::Error>(std::move(error)));
  }
  std::string sent_to() const {
    std::vector<std::string> names;
    for (const auto& s : sends) names.push_back(s.to.name);
    std::sort(names.begin(), names.end());
    std::string text;
    for (const auto& n : names) text += (text.empty() ? "" : " ") + n;
    return text;
  }

  model::Envelope envelope(const model::PartitionId& partition, const model::Assignment& from,
                           const model::Assignment& to) const {
    return {.table = "t",
            .table_uuid = w.map->table,
            .partition = partition,
            .txnseq = w.map->txnseq,
            .from = from.server,
            .incarnation = {1},
            .from_assignment = from.id,
            .to_assignment = to.id};
  }
  // A push.write arrives; the error code of the answer, or "ok".
  std::string arrive(const model::Envelope& e, model::Version version = {}, model::Version settled = {},
                     const std::string& key = "k") {
    model::PushWrite m;
    m.envelope = e;
    m.count = 1;
    m.wall_ms = now.wall;
    m.settled = settled;
    push::WriteArrived in;
    in.call = ++last_call;
    in.message = &m;
    if (version.none()) version = model::Version::make(now.wall, 0, {2}, {1});
    in.seen = {.count = 1, .newest = version, .first_key = key, .last_key = key, .one_stamper = true};
    feed(in);
    return call_answer(last_call);
  }
  std::string call_answer(uint64_t call) const {
    for (const auto& e : log)
      if (const auto* a = std::get_if<push::Answer>(&e); a != nullptr && a->call == call)
        return a->result ? "ok" : std::string(base::code_name(a->result.error().code));
    return "";
  }
  void bulk_end(const model::Envelope& e, uint64_t through) {
    model::BulkEnd m{e, {{1}, {through}, 0}};
    push::BulkEndArrived in;
    in.message = &m;
    feed(in);
  }
  std::string state_of(const model::PartitionId& partition) const {
    for (const auto& c : server.copies())
      if (c.copy.partition == partition) return c.role + "/" + c.state;
    return "none";
  }
  std::map<ServerId, model::Incarnation> live() const {
    std::map<ServerId, model::Incarnation> all;
    for (const auto& s : w.live) all[s] = {1};
    return all;
  }
  const model::Assignment& of(const std::string& name) const {
    return *model::find_assignment(w.only(), ServerId{name});
  }

  DriverWorld& w;
  push::Now now{base::Instant{std::chrono::seconds(100)}, 1'700'000'000'000};
  PushServer server;
  push::Effects log;              // what was asked, in order
  std::vector<push::Send> sends;  // not answered
  bool hold_appends = false;      // appends wait in `appends`
  std::vector<push::Append> appends;
  std::map<model::PartitionId, uint64_t> lsn;
  uint64_t last_request = 0, last_call = 1000;

  void appended(const push::Append& a) {
    auto& at = lsn[a.log];
    at += a.count;
    feed(push::Appended{a.batch, model::LogPoint{{1}, {at}, 7}});
  }

 private:
  static push::Self self_of(std::string name, push::Self self) {
    self.server = ServerId{std::move(name)};
    if (self.number.value == 0) self.number = {1};
    if (self.incarnation.value == 0) self.incarnation = {1};
    return self;
  }

  void answer_sends(const std::string& to, const base::Result<model::PushWriteReply>& what) {
    std::vector<push::Send> mine;
    for (auto it = sends.begin(); it != sends.end();) {
      if (it->to.name == to) {
        mine.push_back(*it);
        it = sends.erase(it);
      } else {
        ++it;
      }
    }
    for (const auto& s : mine) feed(push::SendAnswered{s.batch, s.envelope.to_assignment, what});
  }

  void perform(push::Effects effects) {
    for (auto& e : effects) {
      log.push_back(e);
      if (auto* create = std::get_if<push::Create>(&e)) feed(push::Created{create->copy.partition, base::ok()});
      if (auto* index = std::get_if<push::Index>(&e)) feed(push::Indexed{index->table, index->txnseq});
      if (auto* divide = std::get_if<push::Divide>(&e)) {
        lsn[divide->low.partition] = lsn[divide->high.partition] = lsn[divide->parent];
        feed(push::Divided{divide->parent, base::ok()});
      }
      if (auto* merge = std::get_if<push::Merge>(&e)) {
        lsn[merge->target.partition] = std::max(lsn[merge->low], lsn[merge->high]);
        feed(push::Merged{merge->target.partition, base::ok()});
      }
      if (auto* aside = std::get_if<push::SetAside>(&e)) feed(push::SetAsideDone{aside->assignment, base::ok()});
      if (auto* drop = std::get_if<push::Drop>(&e)) feed(push::Dropped{drop->assignment, base::ok()});
      if (auto* send = std::get_if<push::Send>(&e)) sends.push_back(*send);
      if (auto* append = std::get_if<push::Append>(&e)) {
        if (hold_appends)
          appends.push_back(*append);
        else
          appended(*append);
      }
      if (auto* received = std::get_if<push::AppendReceived>(&e))
        feed(push::ReceivedAppended{received->call, model::LogPoint{{1}, {++lsn[received->log]}, 7}});
    }
  }
};

}  // namespace cantle::proto::test
