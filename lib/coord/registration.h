// Registration: keeps a process's ephemerals (nodes/active/<id>, nodes/version/<id>) alive under its
// current session, through expiry, lost replies and the ephemerals of its life before.
//
//   Registration registration(session, timers, random, incarnation, instance);
//   registration.keep(layout.active(id), active_text(me));
//   registration.keep(layout.version(id), version_text(v));
//   session.on_event([&](Event e) { registration.on_event(e); … });
//   registration.start();
//
// Whose an ephemeral is, its owner session and its incarnation decide (S34, R26):
//   * our session's: ours. Another session's with an incarnation up to ours: a life before, of this
//     process or the last; it is deleted and made anew, never taken for our own.
//   * a higher incarnation, or another data directory: somebody else lives under our id. We do not fight;
//     `displaced` is told once, and we go on looking, since it may be a session that is about to expire.
// Values without an `incarnation:` line (nodes/version) are replaced without asking.
//
// Nothing is trusted for long: a watch says when an ephemeral of ours went, and each is read again once
// a session timeout (R29). After an expiry everything is made anew, at a random moment within a fraction
// of the timeout, so that a whole cluster does not come back at once (S35, R27).
//
// Threads: the session's. Ownership: session, timers and random outlive it. It never removes at the end:
// ending the session does that; withdraw() does it earlier.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "lib/base/random.h"
#include "lib/coord/coord.h"
#include "lib/coord/timers.h"
#include "lib/model/ids.h"

namespace cantle::coord {

class Registration {
 public:
  // `instance`: the identity of the data directory, as in Active; empty: not compared.
  Registration(Session& session, Timers& timers, base::Random& random, model::Incarnation incarnation,
               std::string instance = "");
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  // Adds an ephemeral, or changes the value of one (readonly, an address).
  void keep(std::string path, std::string value);
  void start();
  void on_event(Event event);  // the session's events, passed on by its owner

  // All are there, under the current session.
  bool registered() const;
  // Called at each change of registered().
  void on_change(std::function<void(bool registered)> fn);
  // Called once a time that somebody else is found under our id; `text` says who.
  void on_displaced(std::function<void(const std::string& text)> fn);
  // Removes the ephemerals that are ours and stops keeping them; `done` is called once.
  void withdraw(std::function<void()> done);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace cantle::coord
