#include "capture.h"

#include <algorithm>
#include <set>

#include "state.h"

using namespace lfsim;

Node* Capture::add(const std::shared_ptr<Stream>& stream, std::shared_ptr<Work> work) {
  Node* n = graph->add(std::move(work), frontier[stream]);
  frontier[stream] = {n};
  return n;
}

void Capture::join(const std::shared_ptr<Stream>& stream, const std::vector<Node*>& nodes) {
  auto& f = frontier[stream];
  for (Node* n : nodes) {
    if (std::find(f.begin(), f.end(), n) == f.end()) f.push_back(n);
  }
}

bool Capture::joined() const {
  std::set<Node*> behind;
  std::vector<Node*> todo = frontier.at(origin);
  while (!todo.empty()) {
    Node* n = todo.back();
    todo.pop_back();
    if (behind.insert(n).second) todo.insert(todo.end(), n->needs.begin(), n->needs.end());
  }
  for (auto& [stream, nodes] : frontier) {
    for (Node* n : nodes) {
      if (!behind.count(n)) return false;
    }
  }
  return true;
}

// begin makes stream the origin of a capture into graph, or a new one.
static abi::Result begin(void* handle, int mode, std::shared_ptr<Graph> graph, std::vector<Node*> needs) {
  ENTER(context);
  if (mode < 0 || mode > abi::CaptureRelaxed) return abi::InvalidValue;
  Lock lock(state().mu);
  std::shared_ptr<Stream> s;
  if (abi::Result r = stream_of(context, handle, &s)) return r;
  if (s == context->default_stream) return refuse(abi::StreamCaptureUnsupported, "the default stream cannot be captured");
  if (s->capture) return refuse(abi::InvalidValue, "the stream is being captured already");
  auto c = std::make_shared<Capture>();
  if (graph) c->graph = std::move(graph);
  c->origin = s;
  c->mode = (abi::CaptureMode)mode;
  c->thread = std::this_thread::get_id();
  c->id = next_id();
  c->frontier[s] = std::move(needs);
  s->capture = c;
  state().captures.insert(c);
  return abi::Success;
}

LFSIM_API cuStreamBeginCapture_v2(void* stream, int mode) { return begin(stream, mode, nullptr, {}); }

LFSIM_API cuStreamBeginCaptureToGraph(void* stream, void* graph, void* const* needs, const void*, size_t n, int mode) {
  std::shared_ptr<Graph> g;
  std::vector<Node*> nodes;
  {
    Lock lock(state().mu);
    g = state().graphs.get(graph);
    if (!g) return refuse(abi::InvalidHandle, "%p is not a graph", graph);
    for (size_t i = 0; i < n; i++) {
      if (!g->owns(needs[i])) return refuse(abi::InvalidValue, "%p is not a node of the graph", needs[i]);
      nodes.push_back(static_cast<Node*>(needs[i]));
    }
  }
  return begin(stream, mode, g, nodes);
}

LFSIM_API cuStreamEndCapture(void* handle, void** graph) {
  ENTER(context);
  Lock lock(state().mu);
  std::shared_ptr<Stream> s;
  if (abi::Result r = stream_of(context, handle, &s)) return r;
  auto c = s->capture;
  if (!c) return refuse(abi::InvalidValue, "the stream is not being captured");
  if (c->origin != s) return refuse(abi::StreamCaptureUnmatched, "the capture began on another stream");
  if (c->mode != abi::CaptureRelaxed && c->thread != std::this_thread::get_id()) {
    return refuse(abi::StreamCaptureWrongThread, "the capture began on another thread; only a relaxed one may end here");
  }
  bool joined = c->joined(), spoiled = c->spoiled;
  for (auto& [stream, nodes] : c->frontier) stream->capture = nullptr;
  state().captures.erase(c);
  *graph = nullptr;
  if (spoiled) return abi::StreamCaptureInvalidated;
  if (!joined) return refuse(abi::StreamCaptureUnjoined, "the capture ends, but a stream that it has taken in was not joined: record an event there and wait for it");
  *graph = state().graphs.get(c->graph.get()) ? c->graph.get() : state().graphs.add(c->graph);
  return abi::Success;
}

LFSIM_API cuStreamIsCapturing(void* handle, int* status) {
  ENTER(context);
  Lock lock(state().mu);
  std::shared_ptr<Stream> s;
  if (abi::Result r = stream_of(context, handle, &s)) return r;
  *status = !s->capture ? 0 : s->capture->spoiled ? 2 : 1;
  return abi::Success;
}

LFSIM_API cuThreadExchangeStreamCaptureMode(int* mode) {
  static thread_local int mine = abi::CaptureGlobal;
  std::swap(*mode, mine);
  return abi::Success;
}
