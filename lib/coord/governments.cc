#include "lib/coord/governments.h"

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

void Governments::read(const std::string& d, model::Region region, Done<std::optional<Read>> done) {
  const auto path = layout_.government(d, region);
  session_.sync(path, [this, alive = alive_, path, done = std::move(done)](Result<base::Nothing> synced) {
    if (!*alive) return;
    if (!synced) return done(base::fail(std::move(synced).error()));
    read_government(session_, path, [alive, done](auto read) {
      if (*alive) done(std::move(read));
    });
  });
}

void Governments::swap(const std::string& d, model::Region region, int32_t version, const model::Government& to,
                       Done<int32_t> done) {
  session_.multi({OpSet{layout_.government(d, region), government_text(to), version}, ring(d)},
                 [alive = alive_, done = std::move(done)](Result<std::vector<OpResult>> r) {
                   if (!*alive) return;
                   if (r) return done(r->front().stat.version);
                   auto error = std::move(r).error();
                   if (error.code == Code::not_found) error.code = Code::conflict;
                   done(base::fail(std::move(error)));
                 });
}

namespace {
constexpr int kVoteTries = 4;  // of those that find no directory, or no vote to replace
}

void Governments::put_vote(const std::string& d, model::Region region, const model::Vote& vote,
                           Done<base::Nothing> done) {
  make_vote(d, region, vote, kVoteTries, std::move(done));
}

void Governments::make_vote(const std::string& d, model::Region region, const model::Vote& vote, int tries,
                            Done<base::Nothing> done) {
  session_.create(
      layout_.quorum(d, region, vote.token), "", CreateMode::persistent,
      [this, alive = alive_, d, region, vote, tries, done = std::move(done)](Result<std::string> made) mutable {
        if (!*alive) return;
        if (!made && made.error().code != Code::exists) return done(base::fail(std::move(made).error()));
        create_vote(d, region, vote, false, tries, std::move(done));
      });
}

void Governments::create_vote(const std::string& d, model::Region region, const model::Vote& vote, bool instead,
                              int tries, Done<base::Nothing> done) {
  const auto path = layout_.vote(d, region, vote.token, vote.server);
  std::vector<Op> ops;
  if (instead) ops.emplace_back(OpRemove{path});
  ops.emplace_back(OpCreate{path, vote_text(vote), CreateMode::ephemeral});
  ops.push_back(ring(d));
  session_.multi(std::move(ops), [this, alive = alive_, d, region, vote, instead, tries,
                                  done = std::move(done)](Result<std::vector<OpResult>> r) mutable {
    if (!*alive) return;
    const auto code = r ? Code{} : r.error().code;
    if (code == Code::exists && !instead) return create_vote(d, region, vote, true, tries, std::move(done));
    // The directory was swept in between, or the vote that was to be replaced has just gone with its session.
    if (code == Code::not_found && tries > 1) return make_vote(d, region, vote, tries - 1, std::move(done));
    done(r ? ok() : base::fail(std::move(r).error()));
  });
}

void Governments::remove_vote(const std::string& d, model::Region region, const model::LogToken& token,
                              const model::ServerId& server, Done<base::Nothing> done) {
  session_.remove(layout_.vote(d, region, token, server), kAnyVersion,
                  [this, alive = alive_, parent = layout_.quorum(d, region, token),
                   done = std::move(done)](Result<base::Nothing> gone) {
                    if (!*alive) return;
                    if (!gone && gone.error().code != Code::not_found) return done(std::move(gone));
                    // With the last vote of it the token goes; not_empty is fine.
                    session_.remove(parent, kAnyVersion, [](Result<base::Nothing>) {});
                    done(ok());
                  });
}

namespace {
// Votes that are being read: children of children.
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

void Governments::read_votes(const std::string& d, model::Region region, Done<std::vector<model::Vote>> done) {
  const auto all = std::make_shared<Gathered>();
  all->done = std::move(done);
  const auto path = layout_.quorums(d, region);
  session_.children(path, nullptr, [this, alive = alive_, all, path](Result<Children> tokens) {
    if (!*alive) return;
    if (!tokens) all->failed(tokens.error());
    for (const auto& token : tokens ? tokens->names : std::vector<std::string>{}) {
      ++all->left;
      const auto below = path + "/" + token;
      session_.children(below, nullptr, [this, alive, all, below](Result<Children> names) {
        if (!*alive) return;
        if (!names) all->failed(names.error());
        for (const auto& name : names ? names->names : std::vector<std::string>{}) {
          ++all->left;
          session_.get(below + "/" + name, nullptr, [alive, all](Result<Node> node) {
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
    all->one_less();
  });
}

// --- the bell --------------------------------------------------------------------------------------

void Governments::listen(const std::string& d, std::function<void()> rung) {
  bells_[d].rung = std::move(rung);
  arm(d);
}

void Governments::connected() {
  for (const auto& [d, bell] : bells_) arm(d);
}

void Governments::arm(const std::string& d) {
  const auto number = ++bells_[d].watch;
  session_.children(
      layout_.bell(d),
      [this, alive = alive_, d, number] {
        if (*alive && bells_[d].watch == number) arm(d);
      },
      [this, alive = alive_, d](Result<Children>) {
        if (!*alive) return;
        // Told or not, it may have been rung; what cannot be read now is armed again at the next connection.
        if (const auto& rung = bells_[d].rung) rung();
      });
}

}  // namespace cantle::coord
