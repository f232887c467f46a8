// QuorumWorld: its clients.
#include <algorithm>
#include <utility>

#include "test/sim/quorum_node.h"
#include "test/sim/quorum_world.h"

namespace cantle::sim {

using base::Code;

namespace {

constexpr Duration kAnswerWithin = 1500ms, kWriteWithin = 900ms;
constexpr Duration kCopyLate = 4s;

bool is_counter(const std::string& key) { return key[0] == 'n'; }
bool is_appended(const std::string& key) { return key[0] == 's'; }

}  // namespace

void QuorumWorld::start_clients() {
  asking_ = true;
  for (size_t i = 0; i < chaos_.clients; ++i) {
    clients_.push_back(std::make_unique<Client>(scheduler, "c" + std::to_string(i + 1)));
    clients_.back()->number = i + 1;
    plan(*clients_.back());
  }
}

void QuorumWorld::plan(Client& client) {
  scheduler.after(some(40ms), [this, &client] {
    if (asking_) act(client);
  });
}

void QuorumWorld::act(Client& client) {
  if (client.at.empty() || random_.chance(0.1)) client.at = any_server();
  const size_t partition = random_.below(chaos_.partitions);
  if (random_.chance(0.4)) return read(client, partition);
  client.writing = {draw_write(client, partition), scheduler.now(), {}, false, {}};
  ledger.asked(client.writing.write);
  note_begin(client);
  send(client);
}

// --- reads -----------------------------------------------------------------------------------------

std::string QuorumWorld::draw_key() {
  const size_t which = random_.below(chaos_.keys + 3);
  return which < chaos_.keys        ? "k" + std::to_string(which)
         : which == chaos_.keys     ? "v"
         : which == chaos_.keys + 1 ? "n" + std::to_string(random_.below(2))
                                    : "s";
}

void QuorumWorld::read(Client& client, size_t partition) {
  const auto key = draw_key();
  if (random_.chance(0.4)) return read_session(client, partition, key);
  linear::Operation op;
  op.process = client.number;
  op.key = std::to_string(partition) + "/" + key;
  op.begin = scheduler.now().since_boot.count();
  op.outcome = linear::Outcome::unknown;
  const auto index = operations_.size();
  operations_.push_back(std::move(op));
  network.call(client.process, client.at + "/partd", QuorumGet{partition, key}, kAnswerWithin,
               [this, &client, index](const Network::Answer& answer) { got(client, index, answer); });
}

// As a client has it (lib/client/flow.cc): a token of the partition, or of one that it goes on from.
model::Lsn QuorumWorld::token(const Client& client, size_t partition, const model::PartitionId& of) const {
  for (auto id = of; !id.none();) {
    if (const auto it = client.tokens.find(id); it != client.tokens.end()) return it->second;
    const auto* parent = model::find_parent(*maps_[partition], id);
    id = parent != nullptr ? parent->id : model::PartitionId{};
  }
  return {};
}

// Anywhere: that the replica leads is no matter.
void QuorumWorld::read_session(Client& client, size_t partition, const std::string& key) {
  const auto* at = maps_[partition]->find(key);
  QuorumGet get{partition, key, QuorumGet::Session{at->id, token(client, partition, at->id)}};
  network.call(client.process, any_server() + "/partd", std::move(get), kAnswerWithin,
               [this, &client, partition, key](const Network::Answer& answer) {
                 plan(client);
                 if (!answer) return;
                 const auto& value = std::any_cast<const QuorumValue&>(*answer);
                 saw(client, value.by, value.lsn);
                 if (value.value)
                   sessions_.saw(partition, client.number, key, value.version);
                 else
                   sessions_.saw_none(partition, client.number, key);
               });
}

void QuorumWorld::got(Client& client, size_t index, const Network::Answer& answer) {
  auto& op = operations_[index];
  op.end = scheduler.now().since_boot.count();
  plan(client);
  if (!answer) {
    op.outcome = linear::Outcome::fail;
    client.at = answer.error().code == Code::not_leader ? answer.error().detail : "";
    return;
  }
  const auto& value = std::any_cast<const QuorumValue&>(*answer);
  op.outcome = linear::Outcome::ok;
  op.result = value.value;
  client.seen[op.key] = value;
  saw(client, value.by, value.lsn);
  const auto slash = op.key.find('/');
  const auto table = std::stoull(op.key.substr(0, slash));
  if (value.value)
    sessions_.saw(table, client.number, op.key.substr(slash + 1), value.version);
  else
    sessions_.saw_none(table, client.number, op.key.substr(slash + 1));
}

// --- writes ----------------------------------------------------------------------------------------

std::string QuorumWorld::fresh_value(Client& client) {
  return client.process.host() + "-" + std::to_string(++client.values) +
         std::string(random_.below(chaos_.forgets ? 1500 : 80), '.');
}

QuorumWrite QuorumWorld::draw_write(Client& client, size_t partition) {
  QuorumWrite w;
  w.partition = partition;
  w.client = client.number;
  w.series = w.series_low = ++client.series;
  w.within_ms = base::to_ms(kWriteWithin);
  const bool few = random_.chance(0.2);
  const auto value = [&] {
    return few ? std::string(1, static_cast<char>('a' + random_.below(3))) : fresh_value(client);
  };
  const auto key = few ? "v" : "k" + std::to_string(random_.below(chaos_.keys));
  const auto dice = random_.below(100);
  if (dice < 30) {
    w.ops.push_back({model::Op::put, key, value()});
  } else if (dice < 40) {
    w.ops.push_back({model::Op::del, key, ""});
  } else if (dice < 64) {
    w.kind = model::WriteKind::cas;
    w.ops.push_back({model::Op::put, key, value()});
    draw_swap(client, w);
  } else if (dice < 72) {
    const size_t first = random_.below(chaos_.keys), count = 2 + random_.below(2);
    for (size_t i = 0; i < std::min(count, chaos_.keys); ++i) {
      const bool del = random_.chance(0.2);
      w.ops.push_back({del ? model::Op::del : model::Op::put, "k" + std::to_string((first + i) % chaos_.keys),
                       del ? "" : fresh_value(client)});
    }
  } else if (dice < 86) {
    w.kind = model::WriteKind::incr;
    w.by = static_cast<int64_t>(random_.below(9)) - 3;
    w.ops.push_back({model::Op::put, "n" + std::to_string(random_.below(2)), ""});
  } else {
    w.kind = model::WriteKind::append;
    w.ops.push_back({model::Op::put, "s", client.process.host() + "-" + std::to_string(++client.values) + ","});
  }
  return w;
}

// Of what it saw last, by value or version; of what it did not see, or saw to be absent, mostly by absence.
void QuorumWorld::draw_swap(Client& client, QuorumWrite& w) {
  const auto& key = w.ops[0].key;
  const auto it = client.seen.find(std::to_string(w.partition) + "/" + key);
  if (it == client.seen.end() || !it->second.value || random_.chance(0.2))
    w.expect.absent = true;
  else if (key == "v" || random_.chance(0.4))
    w.expect.value = it->second.value;
  else
    w.expect.version = it->second.version;
}

// As unknown, until there is an answer.
void QuorumWorld::note_begin(Client& client) {
  auto& w = client.writing;
  for (const auto& o : w.write.ops) {
    linear::Operation op;
    op.process = client.number;
    op.key = std::to_string(w.write.partition) + "/" + o.key;
    op.begin = scheduler.now().since_boot.count();
    op.outcome = linear::Outcome::unknown;
    op.input = o.value;
    switch (w.write.kind) {
      case model::WriteKind::write: op.op = o.op == model::Op::del ? linear::Kind::del : linear::Kind::put; break;
      case model::WriteKind::append: op.op = linear::Kind::append; break;
      case model::WriteKind::incr:
        op.op = linear::Kind::incr;
        op.input = std::to_string(w.write.by);
        break;
      case model::WriteKind::cas:
        op.op = linear::Kind::cas;
        // A value of such a key is written once, and so has one version.
        if (w.write.expect.version) op.expected = client.seen.at(op.key).value;
        if (w.write.expect.value) op.expected = w.write.expect.value;
        break;
    }
    w.history.push_back(operations_.size());
    operations_.push_back(std::move(op));
  }
}

void QuorumWorld::send(Client& client) {
  auto& w = client.writing;
  if (client.at.empty()) client.at = any_server();
  w.sent = scheduler.now();
  w.write.age_ms = static_cast<uint64_t>(base::to_ms(w.sent - w.begun));
  if (w.maybe) w.write.age_ms = std::max<uint64_t>(w.write.age_ms, 1);
  for (const auto i : w.history) operations_[i].outcome = linear::Outcome::unknown;
  network.call(client.process, client.at + "/partd", w.write, kAnswerWithin,
               [this, &client](const Network::Answer& answer) { ended(client, answer); });
  if (chaos_.copies) send_copies(client);
}

// At another server at once, or anywhere after a while; nobody waits for what is answered to them.
void QuorumWorld::send_copies(Client& client) {
  const auto copy = [this, &client](Duration after) {
    client.writing.maybe = true;
    scheduler.after(after, [this, &client, to = any_server(), write = client.writing.write] {
      if (asking_) network.call(client.process, to + "/partd", write, kAnswerWithin, [](const Network::Answer&) {});
    });
  };
  if (random_.chance(0.04)) copy(0ms);
  if (random_.chance(0.04)) copy(some(40ms));
  if (random_.chance(0.04)) copy(some(kCopyLate));
}

void QuorumWorld::ended(Client& client, const Network::Answer& answer) {
  auto& w = client.writing;
  if (answer) return done(client, std::any_cast<const QuorumWritten&>(*answer));
  const auto& error = answer.error();
  client.at = error.code == Code::not_leader ? error.detail : "";
  switch (error.code) {
    case Code::condition_failed:
      if (w.write.kind == model::WriteKind::cas) return refused(client);
      [[fallthrough]];
    case Code::invalid:
      if (error.detail == kCrossing) return given_up(client);
      [[fallthrough]];
    case Code::series_old:
    case Code::series_expired:
    case Code::too_large:
    case Code::malformed:
      return violation("series " + std::to_string(w.write.series) + " of " + client.process.host() + " was told " +
                       to_string(error));
    case Code::outcome_unknown: w.maybe = true; break;
    default: break;  // this one did not happen
  }
  if (!w.maybe)
    for (const auto i : w.history) {
      operations_[i].end = scheduler.now().since_boot.count();
      operations_[i].outcome = linear::Outcome::fail;
    }
  scheduler.after(some(60ms), [this, &client] {
    if (asking_) send(client);
  });
}

// A batch whose keys are in two partitions now: what was sent before may have been done.
void QuorumWorld::given_up(Client& client) {
  auto& w = client.writing;
  if (!w.maybe)
    for (const auto i : w.history) {
      operations_[i].end = scheduler.now().since_boot.count();
      operations_[i].outcome = linear::Outcome::fail;
    }
  plan(client);
}

void QuorumWorld::done(Client& client, const QuorumWritten& written) {
  auto& w = client.writing;
  const auto& o = written.outcome;
  const auto kind = w.write.kind == model::WriteKind::incr     ? model::ResultKind::number
                    : w.write.kind == model::WriteKind::append ? model::ResultKind::length
                                                               : model::ResultKind::place;
  if (o.kind != kind) return violation("another sort of answer than was asked for");
  for (const auto i : w.history) {
    auto& op = operations_[i];
    op.end = scheduler.now().since_boot.count();
    op.outcome = linear::Outcome::ok;
    if (is_counter(w.write.ops[0].key) || is_appended(w.write.ops[0].key)) op.result = std::to_string(o.value);
  }
  const auto& last = w.write.ops.back();  // its version is the answer's
  saw(client, written.by, o.lsn);
  sessions_.saw(w.write.partition, client.number, last.key, model::quorum_version(o.epoch, o.lsn));
  if (kind == model::ResultKind::place && last.op == model::Op::put)
    client.seen[std::to_string(w.write.partition) + "/" + last.key] = {last.value,
                                                                       model::quorum_version(o.epoch, o.lsn)};
  plan(client);
}

// Judged since it was sent last. If it may have been sent before, that may still take effect: what the client is told
// then is that it does not know (lib/client/retry.h), and that the key was not as expected is true all the same.
void QuorumWorld::refused(Client& client) {
  auto& w = client.writing;
  auto op = operations_[w.history.front()];
  op.end = scheduler.now().since_boot.count();
  op.outcome = linear::Outcome::ok;
  op.refused = true;
  if (w.maybe && w.write.age_ms == 0) {
    op.begin = w.sent.since_boot.count();
    operations_.push_back(std::move(op));
  } else {  // of what was sent before, none comes to anything else
    ledger.told_refused(w.write.partition, w.write.client, w.write.series);
    operations_[w.history.front()] = std::move(op);
  }
  plan(client);
}

// --- the end -----------------------------------------------------------------------------------------

// Each key's history, that of before and that of after the faults.
void QuorumWorld::check_history() {
  const auto verdict = linear::check(operations_);
  if (verdict.kind == linear::Verdict::Kind::violated) violation("not linearizable: " + verdict.text);
  if (verdict.kind == linear::Verdict::Kind::undecided) violation("the history was not decided: " + verdict.text);
}

}  // namespace cantle::sim
