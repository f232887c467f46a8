#include "lib/coord/governments.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace cantle::coord {

using base::Code;
using base::ok;
using base::Result;

void read_government(Session& session, const std::string& path, Done<std::optional<Governments::Read>> done) {
  session.get(path, nullptr, [done = std::move(done)](Result<Node> node) {
    if (!node && node.error().code == Code::not_found) return done(std::optional<Governments::Read>());
    if (!node) return done(base::fail(std::move(node).error()));
    auto government = parse_government(node->value);
    if (!government) return done(base::fail(std::move(government).error()));
    done(std::optional<Governments::Read>({std::move(*government), node->stat.version}));
  });
}

void read_governments(Session& session, const Layout& layout, const std::string& d, const PartitionRegions& wanted,
                      Done<GovernmentsRead> done) {
  if (wanted.empty()) return done(GovernmentsRead{});
  struct Round {
    GovernmentsRead found;
    size_t left = 0;
    base::Status status = ok();
    Done<GovernmentsRead> done;
  };
  const auto round = std::make_shared<Round>();
  round->left = wanted.size();
  round->done = std::move(done);
  for (const auto& [id, region] : wanted)
    read_government(session, layout.government(d, region),
                    [round, id = id](Result<std::optional<Governments::Read>> read) {
                      if (!read)
                        round->status = base::fail(std::move(read).error());
                      else if (*read)
                        round->found[id] = std::move(**read);
                      if (--round->left != 0) return;
                      if (round->status)
                        round->done(std::move(round->found));
                      else
                        round->done(base::fail(round->status.error()));
                    });
}

namespace {
base::Error asked_again() { return {Code::cancelled, "it is asked for again"}; }
}  // namespace

template <class Answer>
void Governments::ask(Line<Answer>& line, const std::string& path, typename Line<Answer>::Question question) {
  const auto alive = alive_;
  auto& at = line.waiting[path];
  const auto older = std::exchange(at, std::move(question)).done;
  if (!older) line.order.push_back(path);
  ask_more(line);
  if (older && *alive) older(base::fail(asked_again()));
}

template <class Answer>
void Governments::ask_more(Line<Answer>& line) {
  const auto alive = alive_;
  while (*alive && line.out < line.most && !line.order.empty()) {
    auto next = line.waiting.extract(line.order.front());
    line.order.pop_front();
    auto& [wanted, done] = next.mapped();
    if (wanted && !wanted()) {
      done(base::fail(Code::cancelled, "nobody wants it any more"));
      continue;
    }
    ++line.out;
    start(next.key(), [this, alive, &line, done = std::move(done)](Result<Answer> answer) {
      if (!*alive) return;
      --line.out;
      done(std::move(answer));
      if (*alive) ask_more(line);
    });
  }
}

void Governments::start(const std::string& path, Done<std::optional<Read>> done) {
  read_government(session_, path, std::move(done));
}

void Governments::read(const std::string& d, model::Region region, Done<std::optional<Read>> done) {
  auto& at = reads_[layout_.government(d, region)];
  const auto older = std::exchange(at, std::move(done));
  if (!std::exchange(syncing_, true)) sync_reads();
  if (older) older(base::fail(asked_again()));
}

// What is asked for while one is under way began after it, and waits for the next.
void Governments::sync_reads() {
  auto reads = std::make_shared<decltype(reads_)>(std::exchange(reads_, {}));
  const auto path = reads->begin()->first;
  session_.sync(path, [this, alive = alive_, reads](const Result<base::Nothing>& synced) {
    if (!*alive) return;
    syncing_ = !reads_.empty();
    if (syncing_) sync_reads();
    for (auto& [of, done] : *reads) {
      if (synced)
        ask(reading_, of, {nullptr, std::move(done)});
      else
        done(base::fail(synced.error()));
      if (!*alive) return;
    }
  });
}

Governments::Changes& Governments::changes(const std::string& d) {
  auto& of = changes_[d];
  if (of) return *of;
  of = std::make_unique<Changes>(session_, layout_.ring_prefix(d));
  // Whoever does not listen would keep them for ever.
  const auto own = [this, d](const std::string& path) {
    if (const auto bell = bells_.find(d); bell != bells_.end()) bell->second.own.insert(path);
  };
  of->votes.on_rung = own;
  of->governments.on_rung = own;
  return *of;
}

void Governments::swap(const std::string& d, model::Region region, int32_t version, const model::Government& to,
                       Done<int32_t> done) {
  const auto path = layout_.government(d, region);
  const Op set = OpSet{path, government_text(to), version};
  // In an election of thousands the others swap some of them, too: those are found all at once.
  const auto look = [this, path, version, set](Done<Multis::Ops> seen) {
    session_.exists(path, nullptr, [version, set, seen = std::move(seen)](Result<Stat> there) {
      if (!there) return seen(base::fail(std::move(there).error()));
      if (there->version != version) return seen(base::fail(Code::conflict, "another government is there by now"));
      seen(Multis::Ops({set}));
    });
  };
  changes(d).governments.add(
      {{set}, ring_line(region), look, [done = std::move(done)](Result<std::vector<OpResult>> r) {
         if (r) return done(r->front().stat.version);
         auto error = std::move(r).error();
         if (error.code == Code::not_found) error.code = Code::conflict;
         done(base::fail(std::move(error)));
       }});
}

// Each server writes a node of its own, so that those who vote at the same time do not refuse each other.
void Governments::put_vote(const std::string& d, model::Region region, const model::Vote& vote,
                           Done<base::Nothing> done) {
  const auto path = layout_.vote(d, region, vote.token, vote.server);
  forgotten_.erase(path);
  give_up_waiting(path);
  if (const auto it = removing_.find(path); it != removing_.end()) {
    it->second.put_done = std::move(done);
    it->second.put = [this, d, region, vote, path] {
      put_vote(d, region, vote, std::exchange(removing_.extract(path).mapped().put_done, nullptr));
    };
    return;
  }
  const Op make = OpCreate{path, vote_text(vote), CreateMode::ephemeral};
  const auto look = [this, path, make](Done<Multis::Ops> seen) {
    session_.exists(path, nullptr, [path, make, seen = std::move(seen)](Result<Stat> there) {
      if (there) return seen(Multis::Ops({OpRemove{path}, make}));
      if (there.error().code == Code::not_found) return seen(Multis::Ops({make}));
      seen(base::fail(std::move(there).error()));
    });
  };
  changes(d).votes.add(
      {{make}, ring_line(region, vote), look, [done = std::move(done)](Result<std::vector<OpResult>> r) {
         done(r ? ok() : base::fail(std::move(r).error()));
       }});
}

void Governments::remove_vote(const std::string& d, model::Region region, const model::LogToken& token,
                              const model::ServerId& server, Done<base::Nothing> done) {
  const auto path = layout_.vote(d, region, token, server);
  const auto look = [this, path](Done<Multis::Ops> seen) {
    session_.exists(path, nullptr, [path, seen = std::move(seen)](Result<Stat> there) {
      if (there) return seen(Multis::Ops({OpRemove{path}}));
      if (there.error().code == Code::not_found) return seen(std::nullopt);
      seen(base::fail(std::move(there).error()));
    });
  };
  give_up_waiting(path);
  ++removing_[path].left;
  changes(d).removals.add(
      {{OpRemove{path}}, "", look, [this, path, done = std::move(done)](Result<std::vector<OpResult>> r) {
         removed(path);
         done(r ? ok() : base::fail(std::move(r).error()));
       }});
}

void Governments::give_up_waiting(const std::string& path) {
  const auto it = removing_.find(path);
  if (it == removing_.end() || !it->second.put_done) return;
  it->second.put = nullptr;
  std::exchange(it->second.put_done, nullptr)(base::fail(asked_again()));
}

void Governments::removed(const std::string& path) {
  const auto it = removing_.find(path);
  if (--it->second.left > 0) return;
  if (const auto put = std::move(it->second.put))
    put();
  else
    removing_.erase(it);
}

void Governments::forget_vote(const std::string& d, model::Region region, const model::LogToken& token,
                              const model::ServerId& server) {
  const auto path = layout_.vote(d, region, token, server);
  give_up_waiting(path);
  forgotten_.insert(path);
  forget(path);
}

// At once, and by itself: it is before whatever vote is cast there later.
void Governments::forget(const std::string& path) {
  session_.remove(path, kAnyVersion, [this, alive = alive_, path](const Result<base::Nothing>& gone) {
    if (*alive && (gone || gone.error().code == Code::not_found)) forgotten_.erase(path);
  });
}

namespace {
// Votes that are being read.
struct Gathered {
  std::vector<model::Vote> votes;
  size_t left = 1;
  std::optional<base::Error> error;
  Done<std::vector<model::Vote>> done;

  // What was removed between two reads is not there.
  void failed(const base::Error& e) {
    if (e.code != Code::not_found) error = e;
  }
  void one_less() {
    if (--left > 0) return;
    if (error)
      done(base::fail(std::move(*error)));
    else
      done(std::move(votes));
  }
};
}  // namespace

void Governments::read_votes(const std::string& d, model::Region region, std::function<bool()> wanted,
                             Done<std::vector<model::Vote>> done) {
  ask(reading_votes_, layout_.quorums(d, region), {std::move(wanted), std::move(done)});
}

void Governments::start(const std::string& path, Done<std::vector<model::Vote>> done) {
  const auto all = std::make_shared<Gathered>();
  all->done = std::move(done);
  session_.children(path, nullptr, [this, alive = alive_, all, path](Result<Children> names) {
    if (!*alive) return;
    if (!names) all->failed(names.error());
    for (const auto& name : names ? names->names : std::vector<std::string>{}) {
      ++all->left;
      session_.get(path + "/" + name, nullptr, [alive, all](Result<Node> node) {
        if (!*alive) return;
        auto vote = node ? parse_vote(node->value) : base::fail(std::move(node).error());
        if (vote)
          all->votes.push_back(std::move(*vote));
        else
          all->failed(vote.error());
        all->one_less();
      });
    }
    all->one_less();
  });
}

// --- the bell --------------------------------------------------------------------------------------

void Governments::listen(const std::string& d, std::function<void(const Ring&)> rung) {
  bells_[d].rung = std::move(rung);
  arm(d);
}

void Governments::connected() {
  for (auto& [d, bell] : bells_) {
    bell.next.reset();
    arm(d);
  }
  for (const auto& path : std::set(forgotten_)) forget(path);
}

void Governments::arm(const std::string& d) {
  const auto number = ++bells_[d].watch;
  session_.children(
      layout_.bell(d),
      [this, alive = alive_, d, number] {
        if (*alive && bells_[d].watch == number) arm(d);
      },
      [this, alive = alive_, d](Result<Children> rings) {
        if (!*alive) return;
        if (rings) return hear(d, rings->names);
        // Told or not, it may have been rung; what cannot be read now is armed again at the next connection.
        auto& bell = bells_[d];
        bell.next.reset();
        bell.rung({});
      });
}

namespace {
std::optional<uint64_t> number_of(std::string_view ring) {
  const auto digits = ring.substr(std::min(ring.size(), ring.rfind('-') + 1));
  uint64_t n = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  return error == std::errc{} && end == digits.data() + digits.size() ? std::optional(n) : std::nullopt;
}
}  // namespace

// Rings are numbered without gaps, and swept when they are old: who finds one missing has to ask for everything, as
// does who finds too many.
void Governments::hear(const std::string& d, const std::vector<std::string>& rings) {
  auto& bell = bells_[d];
  const auto last = rings.empty() ? std::nullopt : number_of(rings.back());
  const auto from = bell.next;
  bell.next = last ? *last + 1 : rings.empty() ? from.value_or(0) : from;
  if (!from || !bell.next || *bell.next < *from || *bell.next - *from > kRingsRead) {
    bell.own.clear();
    return bell.rung({});
  }
  std::vector<std::string> paths;
  size_t came = 0;
  for (auto ring = rings.rbegin(); ring != rings.rend() && number_of(*ring) >= from; ++ring, ++came)
    if (auto path = layout_.bell(d) + "/" + *ring; bell.own.erase(path) == 0) paths.push_back(std::move(path));
  if (came < *bell.next - *from) return bell.rung({});
  if (!paths.empty()) read_rings(d, paths);
}

void Governments::read_rings(const std::string& d, const std::vector<std::string>& paths) {
  struct Heard {
    Ring ring;
    bool any = false;
    size_t left = 0;
  };
  const auto heard = std::make_shared<Heard>();
  heard->left = paths.size();
  for (const auto& path : paths)
    session_.get(path, nullptr, [this, alive = alive_, d, heard](const Result<Node>& node) {
      if (!*alive) return;
      auto ring = node ? parse_ring(node->value) : base::fail(node.error());
      heard->any |= !ring || ring->any();
      if (ring) {
        auto& all = heard->ring;
        all.votes.insert(all.votes.end(), ring->votes.begin(), ring->votes.end());
        all.governments.insert(all.governments.end(), ring->governments.begin(), ring->governments.end());
      }
      if (--heard->left == 0) bells_[d].rung(heard->any ? Ring{} : heard->ring);
    });
}

}  // namespace cantle::coord
