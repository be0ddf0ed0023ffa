#include "state.h"

#include <atomic>

namespace lfsim {

State& state() {
  static auto* s = new State;  // never destroyed: streams may outlive main
  return *s;
}

uint64_t next_id() {
  static std::atomic<uint64_t> n{0};
  return ++n;
}

static std::atomic<int>& sticky_error(const Context* context) {
  static auto* errors = new std::vector<std::atomic<int>>((size_t)settings().devices);
  return (*errors)[(size_t)context->device];
}

abi::Result sticky(const Context* context) { return (abi::Result)sticky_error(context).load(); }

void set_sticky(const Context* context, abi::Result r) {
  int none = 0;
  sticky_error(context).compare_exchange_strong(none, r);
}

abi::Result enter(Context** context) {
  {
    Lock lock(state().mu);
    if (!state().initialized) return refuse(abi::NotInitialized, "a call before cuInit");
  }
  *context = current_context();
  if (!*context) return abi::InvalidContext;
  if ((*context)->destroyed) return refuse(abi::ContextIsDestroyed, "a call on a context that was destroyed");
  return sticky(*context);
}

void Context::synchronize() {
  std::vector<std::shared_ptr<Stream>> all;
  {
    Lock lock(state().mu);
    all.push_back(default_stream);
    for (auto& [key, weak] : streams) {
      if (auto s = weak.lock()) all.push_back(s);
    }
  }
  for (auto& s : all) s->wait(s->tail());
}

abi::Result stream_of(Context* context, void* handle, std::shared_ptr<Stream>* found) {
  auto h = (uintptr_t)handle;
  if (h == 0 || h == 1) {
    *found = context->default_stream;
    return abi::Success;
  }
  if (h == 2) return refuse(abi::NotSupported, "the default stream of a thread is not simulated");
  *found = state().streams.get(handle);
  if (!*found) return refuse(abi::InvalidHandle, "%p is not a stream, or one that was destroyed", handle);
  if ((*found)->context != context) return refuse(abi::InvalidHandle, "the stream belongs to another context than the current one");
  return abi::Success;
}

// The default stream waits for all blocking streams, and they for it.
static void order_default(Context* context, const std::shared_ptr<Stream>& s) {
  if (s == context->default_stream) {
    for (auto& [key, weak] : context->streams) {
      auto other = weak.lock();
      if (!other || !other->blocking) continue;
      if (uint64_t tail = other->tail()) s->push(std::make_shared<WaitWork>(other, tail));
    }
  } else if (s->blocking) {
    uint64_t tail = context->default_stream->tail();
    if (tail > s->seen_default) {
      s->seen_default = tail;
      s->push(std::make_shared<WaitWork>(context->default_stream, tail));
    }
  }
}

abi::Result submit(Context* context, void* handle, std::shared_ptr<Work> work, std::shared_ptr<Mark> mark) {
  Lock lock(state().mu);
  std::shared_ptr<Stream> s;
  if (abi::Result r = stream_of(context, handle, &s)) return r;
  if (s->capture) {
    if (s->capture->spoiled) return abi::StreamCaptureInvalidated;
    s->capture->add(s, std::move(work));
    return abi::Success;
  }
  if (s == context->default_stream) {
    for (auto& c : state().captures) {
      for (auto& [other, nodes] : c->frontier) {
        if (other->context != context || !other->blocking || c->mode == abi::CaptureRelaxed) continue;
        c->spoiled = true;
        return refuse(abi::StreamCaptureImplicit, "work for the default stream while a blocking stream is being captured");
      }
    }
  }
  order_default(context, s);
  uint64_t ticket = s->push(std::move(work));
  if (mark) {
    mark->stream = s;
    mark->ticket = ticket;
  }
  return abi::Success;
}

abi::Result run_default(Context* context, std::shared_ptr<Work> work) {
  auto mark = std::make_shared<Mark>();
  if (abi::Result r = submit(context, nullptr, std::move(work), mark)) return r;
  mark->stream->wait(mark->ticket);
  return sticky(context);
}

abi::Result unsafe(const char* call) {
  Lock lock(state().mu);
  for (auto& c : state().captures) {
    bool forbids = c->mode == abi::CaptureGlobal || (c->mode == abi::CaptureThreadLocal && c->thread == std::this_thread::get_id());
    if (!forbids) continue;
    c->spoiled = true;
    return refuse(abi::StreamCaptureUnsupported, "%s while a stream is being captured", call);
  }
  return abi::Success;
}

}  // namespace lfsim
