// Streams and events.
#include <algorithm>

#include "state.h"
#include "work.h"

using namespace lfsim;

LFSIM_API cuStreamCreateWithPriority(void** handle, unsigned flags, int priority) {
  ENTER(context);
  if (flags > abi::StreamNonBlocking) return abi::InvalidValue;
  auto s = Stream::start(context, !(flags & abi::StreamNonBlocking), std::max(-5, std::min(0, priority)));
  Lock lock(state().mu);
  context->streams[s.get()] = s;
  *handle = state().streams.add(s);
  return abi::Success;
}
LFSIM_API cuStreamCreate(void** handle, unsigned flags) { return cuStreamCreateWithPriority(handle, flags, 0); }

LFSIM_API cuStreamDestroy_v2(void* handle) {
  ENTER(context);
  Lock lock(state().mu);
  auto s = state().streams.get(handle);
  if (!s) return refuse(abi::InvalidHandle, "%p is not a stream, or one that was destroyed", handle);
  if (s->capture) s->capture->spoiled = true;
  s->close();
  s->context->streams.erase(s.get());
  state().streams.erase(handle);
  return abi::Success;
}

// open_stream finds a stream that is not being captured, for calls that wait.
static abi::Result open_stream(Context* context, void* handle, const char* call, std::shared_ptr<Stream>* s) {
  Lock lock(state().mu);
  if (abi::Result r = stream_of(context, handle, s)) return r;
  if (!(*s)->capture) return abi::Success;
  (*s)->capture->spoiled = true;
  return refuse(abi::StreamCaptureUnsupported, "%s of a stream that is being captured", call);
}

LFSIM_API cuStreamSynchronize(void* handle) {
  ENTER(context);
  std::shared_ptr<Stream> s;
  if (abi::Result r = open_stream(context, handle, "cuStreamSynchronize", &s)) return r;
  if (s == context->default_stream) return run_default(context, std::make_shared<EmptyWork>());
  s->wait(s->tail());
  return sticky(context);
}

LFSIM_API cuStreamQuery(void* handle) {
  ENTER(context);
  std::shared_ptr<Stream> s;
  if (abi::Result r = open_stream(context, handle, "cuStreamQuery", &s)) return r;
  return s->reached(s->tail()) ? sticky(context) : abi::NotReady;
}

LFSIM_API cuStreamGetPriority(void* handle, int* priority) {
  ENTER(context);
  Lock lock(state().mu);
  std::shared_ptr<Stream> s;
  if (abi::Result r = stream_of(context, handle, &s)) return r;
  *priority = s->priority;
  return abi::Success;
}

LFSIM_API cuStreamGetFlags(void* handle, unsigned* flags) {
  ENTER(context);
  Lock lock(state().mu);
  std::shared_ptr<Stream> s;
  if (abi::Result r = stream_of(context, handle, &s)) return r;
  *flags = s->blocking ? 0u : (unsigned)abi::StreamNonBlocking;
  return abi::Success;
}

LFSIM_API cuStreamGetCtx(void* handle, void** of) {
  ENTER(context);
  Lock lock(state().mu);
  std::shared_ptr<Stream> s;
  if (abi::Result r = stream_of(context, handle, &s)) return r;
  *of = s->context;
  return abi::Success;
}

LFSIM_API cuEventCreate(void** handle, unsigned flags) {
  ENTER(context);
  auto e = std::make_shared<Event>();
  e->timing = !(flags & abi::EventDisableTiming);
  Lock lock(state().mu);
  *handle = state().events.add(e);
  return abi::Success;
}

LFSIM_API cuEventDestroy_v2(void* handle) {
  ENTER(context);
  Lock lock(state().mu);
  return state().events.erase(handle) ? abi::Success : refuse(abi::InvalidHandle, "%p is not an event, or one that was destroyed", handle);
}

static abi::Result event_of(void* handle, std::shared_ptr<Event>* e) {
  *e = state().events.get(handle);
  return *e ? abi::Success : refuse(abi::InvalidHandle, "%p is not an event, or one that was destroyed", handle);
}

LFSIM_API cuEventRecord(void* handle, void* stream) {
  ENTER(context);
  auto mark = std::make_shared<Mark>();
  {
    Lock lock(state().mu);
    std::shared_ptr<Event> e;
    std::shared_ptr<Stream> s;
    if (abi::Result r = event_of(handle, &e)) return r;
    if (abi::Result r = stream_of(context, stream, &s)) return r;
    if (s->capture) {
      e->capture = s->capture;
      e->nodes = s->capture->frontier[s];
      e->mark = nullptr;
      return abi::Success;
    }
  }
  if (abi::Result r = submit(context, stream, std::make_shared<RecordWork>(mark), mark)) return r;
  Lock lock(state().mu);
  std::shared_ptr<Event> e;
  if (abi::Result r = event_of(handle, &e)) return r;
  e->capture = nullptr;
  e->mark = mark;
  return abi::Success;
}
LFSIM_API cuEventRecordWithFlags(void* handle, void* stream, unsigned) { return cuEventRecord(handle, stream); }

// recorded returns the mark of an event that was not recorded in a capture.
static abi::Result recorded(void* handle, std::shared_ptr<Event>* e, std::shared_ptr<Mark>* mark) {
  Lock lock(state().mu);
  if (abi::Result r = event_of(handle, e)) return r;
  if ((*e)->capture) return refuse(abi::CapturedEvent, "the event was last recorded in a capture: there is no time at which it happens");
  *mark = (*e)->mark;
  return abi::Success;
}

LFSIM_API cuEventQuery(void* handle) {
  ENTER(context);
  std::shared_ptr<Event> e;
  std::shared_ptr<Mark> m;
  if (abi::Result r = recorded(handle, &e, &m)) return r;
  return !m || m->stream->reached(m->ticket) ? sticky(context) : abi::NotReady;
}

LFSIM_API cuEventSynchronize(void* handle) {
  ENTER(context);
  std::shared_ptr<Event> e;
  std::shared_ptr<Mark> m;
  if (abi::Result r = recorded(handle, &e, &m)) return r;
  if (m) m->stream->wait(m->ticket);
  return sticky(context);
}

LFSIM_API cuEventElapsedTime_v2(float* ms, void* from, void* to) {
  ENTER(context);
  std::shared_ptr<Event> a, b;
  std::shared_ptr<Mark> begin, end;
  if (abi::Result r = recorded(from, &a, &begin)) return r;
  if (abi::Result r = recorded(to, &b, &end)) return r;
  if (!a->timing || !b->timing) return refuse(abi::InvalidHandle, "the time between events that were made without timing");
  if (!begin || !end) return refuse(abi::InvalidHandle, "the time between events, one of which was never recorded");
  if (!begin->stream->reached(begin->ticket) || !end->stream->reached(end->ticket)) return abi::NotReady;
  *ms = (float)((end->seconds - begin->seconds) * 1e3);
  return abi::Success;
}
LFSIM_API cuEventElapsedTime(float* ms, void* from, void* to) { return cuEventElapsedTime_v2(ms, from, to); }

LFSIM_API cuStreamWaitEvent(void* handle, void* event, unsigned) {
  ENTER(context);
  std::shared_ptr<Mark> mark;
  {
    Lock lock(state().mu);
    std::shared_ptr<Event> e;
    std::shared_ptr<Stream> s;
    if (abi::Result r = event_of(event, &e)) return r;
    if (abi::Result r = stream_of(context, handle, &s)) return r;
    if (e->capture) {
      if (!state().captures.count(e->capture)) return refuse(abi::CapturedEvent, "waiting for an event of a capture that has ended");
      if (s->capture && s->capture != e->capture) {
        s->capture->spoiled = e->capture->spoiled = true;
        return refuse(abi::StreamCaptureMerge, "waiting would make one of two captures");
      }
      if (s == context->default_stream) return refuse(abi::StreamCaptureImplicit, "the default stream would be taken into a capture");
      s->capture = e->capture;
      e->capture->join(s, e->nodes);
      return abi::Success;
    }
    if (s->capture && e->mark) {
      s->capture->spoiled = true;
      return refuse(abi::StreamCaptureIsolation, "a capture waits for an event of work outside of it");
    }
    mark = e->mark;
  }
  if (!mark) return abi::Success;  // never recorded: nothing to wait for
  return submit(context, handle, std::make_shared<WaitWork>(mark->stream, mark->ticket));
}
