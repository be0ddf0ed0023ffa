// The driver's state: devices, contexts, handles, and the sticky errors. API
// functions begin with ENTER, which checks what all of them need.
#pragma once
#include <stdint.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "../engine/engine.h"
#include "abi.h"
#include "capture.h"
#include "image.h"
#include "stream.h"

#define LFSIM_API extern "C" __attribute__((visibility("default"))) lfsim::abi::Result

namespace lfsim {

// Handles are the objects of one kind that live; a handle is a pointer to one.
// A holder of the shared_ptr may use it after it was destroyed.
template <class T>
class Handles {
 public:
  T* add(std::shared_ptr<T> object) {
    T* key = object.get();
    live_[key] = std::move(object);
    return key;
  }
  std::shared_ptr<T> get(const void* handle) const {
    auto it = live_.find(handle);
    return it == live_.end() ? nullptr : it->second;
  }
  bool erase(const void* handle) { return live_.erase(handle) != 0; }
  const std::map<const void*, std::shared_ptr<T>>& all() const { return live_; }

 private:
  std::map<const void*, std::shared_ptr<T>> live_;
};

// Architecture holds the limits of a compute capability.
struct Architecture {
  int major, minor;
  int multiprocessors, threads, blocks;  // threads and blocks of a multiprocessor
  int shared_multiprocessor, shared_optin;
  int l2;
};
const Architecture& architecture();

// Context is a context of a device; the primary context exists while it is retained.
struct Context {
  int device = 0;
  bool primary = false;
  int retained = 0;
  bool destroyed = false;
  uint64_t id = 0;
  std::shared_ptr<Stream> default_stream;           // made with the context
  std::map<const Stream*, std::weak_ptr<Stream>> streams;  // in addition

  // synchronize waits for all of its streams. Not under the driver's lock.
  void synchronize();
};

struct Function {
  const KernelDef* kernel;
  struct Module* module;
  const Entry* entry = nullptr;  // what the image says of it; null if it is compressed
  int max_dynamic_shared = 48 * 1024;
};

struct Module {
  Context* context;
  Image image;
  std::map<std::string, std::unique_ptr<Function>> functions;
};

struct Event {
  bool timing = true;
  std::shared_ptr<Mark> mark;        // of the last record
  std::shared_ptr<Capture> capture;  // that the last record belongs to, if any
  std::vector<Node*> nodes;          // where in it
};

struct State {
  std::mutex mu;  // guards all below; never held while waiting for streams
  bool initialized = false;
  std::vector<std::shared_ptr<Context>> primaries;
  Handles<Context> contexts;
  Handles<Stream> streams;
  Handles<Event> events;
  Handles<Module> modules;
  Handles<Function> functions;
  Handles<Graph> graphs;
  Handles<GraphExec> execs;
  std::set<std::shared_ptr<Capture>> captures;
};
State& state();

using Lock = std::lock_guard<std::mutex>;

uint64_t next_id();

// The error of a launch that failed stays on its device until the process ends.
abi::Result sticky(const Context*);
void set_sticky(const Context*, abi::Result);

// current_context returns the top of the calling thread's stack, null if empty.
Context* current_context();
abi::Result enter(Context** context);

#define ENTER(context)                                       \
  lfsim::Context* context;                                   \
  if (lfsim::abi::Result r_ = lfsim::enter(&context)) return r_; \
  (void)context

// refuse complains and passes on an error.
template <class... A>
abi::Result refuse(abi::Result r, const char* format, A... args);

// submit adds work to a stream, or to the graph that it captures. The handle
// 0 or 1 is the default stream. mark, if given, is set to the position after it.
abi::Result submit(Context* context, void* stream, std::shared_ptr<Work> work, std::shared_ptr<Mark> mark = nullptr);

// stream_of finds the stream of a handle, complaining if there is none.
abi::Result stream_of(Context* context, void* handle, std::shared_ptr<Stream>* found);

// wait_default gives work to the default stream and waits for it.
abi::Result run_default(Context* context, std::shared_ptr<Work> work);

// unsafe refuses calls that a capture under way forbids, and spoils it, as the
// driver does for allocations and synchronous copies.
abi::Result unsafe(const char* call);

}  // namespace lfsim

#include "settings.h"

template <class... A>
lfsim::abi::Result lfsim::refuse(abi::Result r, const char* format, A... args) {
  if constexpr (sizeof...(args) == 0) {
    complain("%s", format);
  } else {
    complain(format, args...);
  }
  return r;
}
