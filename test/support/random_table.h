// RandomTable: a table whose METADATA takes random but mostly sensible operations, for property tests,
// benches and fuzz corpora.
//
//   RandomTable t(seed, {.servers = 5, .replicas = 3});
//   for (…) t.step();        // t.current() is always a valid file
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/check.h"
#include "lib/model/operation.h"

namespace cantle::test {

struct RandomTableOptions {
  uint32_t servers = 5, replicas = 3;
  size_t partitions = 1;                                      // at creation
  model::Replication replication = model::Replication::push;  // a quorum table's partitions are merged, too
};

class RandomTable {
 public:
  using Options = RandomTableOptions;

  explicit RandomTable(uint64_t seed, Options options = {}) : options_(options), random_(seed) {
    auto created = model::apply(nullptr, create(), context());
    CHECK(created.has_value());
    current_ = std::move(*created);
  }

  const model::Metadata& current() const { return current_; }
  base::Random& random() { return random_; }
  model::ServerId server(size_t i) const { return {"p" + std::to_string(i % options_.servers + 1)}; }
  model::ServerId any_server() { return server(random_.below(options_.servers)); }
  const model::Partition& any() { return current_.partitions[random_.below(current_.partitions.size())]; }
  model::ApplyContext context() {
    return {model::TxnId::draw(random_), model::ChangeId::draw(random_),
            current_.txnseq.value == 0 ? std::string() : std::string(32, static_cast<char>(current_.txnseq.value))};
  }

  std::vector<model::Operation> create() {
    model::ops::CreateTable op;
    op.name = "random";
    op.table = model::TableUuid::draw(random_);
    op.replicas = options_.replicas;
    op.replication = options_.replication;
    for (size_t i = 0; i < options_.partitions; i++) {
      model::ops::NewPartition p{.id = model::PartitionId::draw(random_),
                                 .interval = {i == 0 ? "" : key(i), i + 1 == options_.partitions ? "" : key(i + 1)},
                                 .assignments = {}};
      for (uint32_t s = 0; s < options_.replicas; s++)
        p.assignments.push_back({server(i + s), model::AssignmentId::draw(random_)});
      op.partitions.push_back(std::move(p));
    }
    return {op};
  }
  static std::string key(size_t i) {
    std::string k(8, '0');
    for (size_t d = 8; d-- > 0; i /= 10) k[d] = static_cast<char>('0' + i % 10);
    return k;
  }

  // An operation that mostly fits what is going on.
  model::Operation draw_operation() {
    const auto& p = any();
    if (p.split) {
      switch (random_.below(5)) {
        case 0: return model::ops::AbortSplit{p.id, p.split->attempt};
        case 1: return mark(random_.chance(0.5) ? p.split->low : p.split->high);
        default:
          if (p.split->phase == model::SplitPhase::barrier) return model::ops::Initialize{p.id, p.split->attempt};
          return random_.chance(0.5) ? model::Operation(with_cut(finalize(p)))
                                     : mark(random_.chance(0.5) ? p.split->low : p.split->high);
      }
    }
    if (p.merge) {
      if (random_.chance(0.3)) return model::ops::AbortMerge{p.merge->attempt, p.merge->low, p.merge->high};
      model::ops::FinalizeMerge op{
          p.merge->attempt, p.merge->low, p.merge->high, {}, model::ops::FinalCuts{cut(), cut()}};
      for (const auto& a : p.merge->target.assignments)
        if (random_.chance(0.8)) op.ready.push_back(a.id);
      return op;
    }
    if (!p.moves.empty()) {
      const auto& m = p.moves.front();
      switch (random_.below(6)) {
        case 0: return model::ops::CancelMove{p.id, m.attempt};
        case 1: return model::ops::FinalizeMove{p.id, m.attempt};
        case 2: return model::ops::Initialize{p.id, m.attempt};
        default: return mark_available(m.to);
      }
    }
    const auto* next = p.interval.end.empty() ? nullptr : current_.find(p.interval.end);
    if (quorum() && next != nullptr && random_.chance(0.3)) return model::draw_merge(p, *next, random_);
    switch (random_.below(10)) {
      case 0:
        return model::ops::SetOption{"read_level",
                                     random_.chance(0.5) ? std::optional<std::string>("majority") : std::nullopt};
      case 1: return model::ops::RemoveDead{any_server()};
      case 2:
        if (!current_.ended.empty())
          return model::ops::SweepEnded{current_.ended.front().id, current_.ended.front().attempt};
        [[fallthrough]];
      case 3:
      case 4:
        return model::draw_replace(p, p.assignments[random_.below(p.assignments.size())], any_server(),
                                   random_.chance(0.5), random_);
      case 5: return mark_available(p.assignments[random_.below(p.assignments.size())].id);
      default: return model::draw_split(p, point(p), servers(), servers(), random_);
    }
  }

  // One transaction of a few operations; true when it was accepted.
  bool step(std::vector<model::Operation>* did = nullptr) {
    std::vector<model::Operation> list;
    for (uint64_t n = 1 + random_.below(2); n > 0; n--) list.push_back(draw_operation());
    auto next = model::apply(&current_, list, context());
    if (!next) return false;
    current_ = std::move(*next);
    if (did != nullptr) *did = std::move(list);
    return true;
  }

  std::string point(const model::Partition& p) {
    std::string k = p.interval.begin;
    k += static_cast<char>(random_.below(256));
    if (random_.chance(0.7)) k += static_cast<char>(random_.below(256));
    return k;
  }
  // `replicas` different ones, or none for "where the parent is".
  std::vector<model::ServerId> servers() {
    std::vector<model::ServerId> out;
    if (quorum() || random_.chance(0.4)) return out;
    const auto first = random_.below(options_.servers);
    for (uint32_t i = 0; i < options_.replicas; i++) out.push_back(server(first + i));
    return out;
  }
  static model::ops::FinalizeSplit finalize(const model::Partition& p) {
    model::ops::FinalizeSplit op{p.id, p.split->attempt, {}};
    for (const auto* child : {&p.split->low, &p.split->high})
      for (const auto& a : child->assignments) {
        const auto* source = a.source.none() ? nullptr : model::find_assignment(p, a.source);
        const bool has = source != nullptr && source->state == model::AssignmentState::available;
        if (has || a.state == model::AssignmentState::available) op.ready.push_back(a.id);
      }
    return op;
  }

 private:
  bool quorum() const { return options_.replication == model::Replication::quorum; }
  model::ops::FinalCut cut() {
    const model::Epoch epoch{1 + random_.below(9)};
    return {{epoch, {1 + random_.below(1000)}, 7}, epoch, static_cast<int32_t>(random_.below(20))};
  }
  model::ops::FinalizeSplit with_cut(model::ops::FinalizeSplit op) {
    if (quorum()) op.cut = cut();
    return op;
  }
  model::Operation mark_available(const model::AssignmentId& id) {
    model::ServerId server;
    const auto* p = current_.partitions.by_assignment(id);
    if (const auto* a = p != nullptr ? model::find_assignment(*p, id) : nullptr) server = a->server;
    if (p != nullptr && p->split)
      for (const auto* child : {&p->split->low, &p->split->high})
        for (const auto& a : child->assignments)
          if (a.id == id) server = a.server;
    return model::ops::MarkAvailable{id, server};
  }
  model::Operation mark(const model::Child& child) {
    return mark_available(child.assignments[random_.below(child.assignments.size())].id);
  }

  Options options_;
  base::SeededRandom random_;
  model::Metadata current_;
};

}  // namespace cantle::test
