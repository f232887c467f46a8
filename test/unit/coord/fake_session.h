// FakeSession: a tree in memory behind the interface, whose answers come when the test says so; it counts what was
// asked.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lib/coord/coord.h"
#include "lib/coord/path.h"

namespace cantle::coord {

class FakeSession final : public Session {
 public:
  std::map<std::string, Node> tree;
  std::vector<size_t> multis;  // how many ops each had
  size_t reads = 0, syncs = 0;
  bool lose_next_multi = false;    // it happens, and the answer is lost
  bool refuse_next_multi = false;  // it is not sent

  void put(const std::string& path, std::string value = "") { tree[path] = {std::move(value), {}}; }
  // Until nothing is under way.
  void run() {
    while (!answers_.empty()) step();
  }
  void step() {
    auto next = std::move(answers_.front());
    answers_.pop_front();
    next();
  }
  bool idle() const { return answers_.empty(); }
  size_t under_way() const { return answers_.size(); }

  void get(std::string path, Watch, Done<Node> done) override {
    ++reads;
    later([this, path, done] {
      const auto it = tree.find(path);
      done(it == tree.end() ? missing<Node>(path) : base::Result<Node>(it->second));
    });
  }
  void exists(std::string path, Watch, Done<Stat> done) override {
    ++reads;
    later([this, path, done] {
      const auto it = tree.find(path);
      done(it == tree.end() ? missing<Stat>(path) : base::Result<Stat>(it->second.stat));
    });
  }
  void children(std::string path, Watch watch, Done<Children> done) override {
    ++reads;
    later([this, path, watch, done] {
      if (!tree.contains(path)) return done(missing<Children>(path));
      Children found;
      for (const auto& [child, node] : tree)
        if (child != "/" && parent_of(child) == path) found.names.emplace_back(name_of(child));
      if (watch) watches_.emplace(path, watch);
      done(std::move(found));
    });
  }
  void create(std::string path, std::string value, CreateMode mode, Done<std::string> done) override {
    multi({OpCreate{std::move(path), std::move(value), mode}}, [done](base::Result<std::vector<OpResult>> r) {
      done(r ? base::Result<std::string>(r->front().path) : base::fail(r.error()));
    });
  }
  void set(std::string path, std::string value, int32_t version, Done<Stat> done) override {
    multi({OpSet{std::move(path), std::move(value), version}}, [done](base::Result<std::vector<OpResult>> r) {
      done(r ? base::Result<Stat>(r->front().stat) : base::fail(r.error()));
    });
  }
  void remove(std::string path, int32_t version, Done<base::Nothing> done) override {
    multi({OpRemove{std::move(path), version}},
          [done](base::Result<std::vector<OpResult>> r) { done(r ? base::ok() : base::fail(r.error())); });
  }
  void multi(std::vector<Op> ops, Done<std::vector<OpResult>> done) override {
    multis.push_back(ops.size());
    later([this, ops, done] {
      if (std::exchange(refuse_next_multi, false)) return done(base::fail(base::Code::unavailable, "not sent"));
      auto result = apply(ops);
      if (std::exchange(lose_next_multi, false)) return done(base::fail(base::Code::outcome_unknown, "lost"));
      done(std::move(result));
    });
  }
  void sync(std::string, Done<base::Nothing> done) override {
    ++syncs;
    later([done] { done(base::ok()); });
  }
  void on_event(std::function<void(Event)>) override {}
  bool connected() const override { return true; }
  uint64_t session_id() const override { return 1; }
  base::Instant last_confirmed() const override { return {}; }
  base::Duration timeout() const override { return std::chrono::seconds(4); }

 private:
  void later(std::function<void()> fn) { answers_.push_back(std::move(fn)); }
  template <class T>
  static base::Result<T> missing(const std::string& path) {
    return base::fail(base::Code::not_found, path);
  }

  base::Result<std::vector<OpResult>> apply(const std::vector<Op>& ops) {
    auto next = tree;
    std::vector<OpResult> results;
    for (const auto& op : ops) {
      const auto refuse = [&](base::Code code) {
        base::Error e(code, op.path);
        e.detail = std::to_string(results.size());
        return base::fail(std::move(e));
      };
      OpResult result;
      auto it = next.find(op.path);
      if (op.kind == Op::Kind::create) {
        result.path = op.path;
        if (op.mode == CreateMode::persistent_sequential) {
          const auto n = std::to_string(sequence_++);
          result.path += std::string(10 - n.size(), '0') + n;
        }
        if (!next.contains(std::string(parent_of(op.path)))) return refuse(base::Code::not_found);
        if (!next.emplace(result.path, Node{op.value, {}}).second) return refuse(base::Code::exists);
      } else if (it == next.end()) {
        return refuse(base::Code::not_found);
      } else if (op.version != kAnyVersion && op.version != it->second.stat.version) {
        return refuse(base::Code::conflict);
      } else if (op.kind == Op::Kind::set) {
        it->second.value = op.value;
        result.stat.version = ++it->second.stat.version;
      } else if (op.kind == Op::Kind::remove) {
        for (const auto& [path, node] : next)
          if (parent_of(path) == op.path) return refuse(base::Code::not_empty);
        next.erase(it);
      }
      results.push_back(std::move(result));
    }
    tree = std::move(next);
    for (const auto& op : ops) {
      if (op.kind != Op::Kind::create && op.kind != Op::Kind::remove) continue;
      const auto [from, to] = watches_.equal_range(std::string(parent_of(op.path)));
      for (auto w = from; w != to; ++w) later(w->second);
      watches_.erase(from, to);
    }
    return results;
  }

  std::deque<std::function<void()>> answers_;
  std::multimap<std::string, Watch> watches_;
  uint64_t sequence_ = 0;
};

}  // namespace cantle::coord
